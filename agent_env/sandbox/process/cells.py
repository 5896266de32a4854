"""A cell: one child behind its walls, with all that limits it and all that has to be removed after it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
from pathlib import Path

from agent_env.sandbox.interface import Limits
from agent_env.sandbox.process.cgroups import Cgroup, Cgroups
from agent_env.sandbox.process.forkserver import Child, ChildEnd, ForkServer
from agent_env.sandbox.process.inside.settings import Spawn
from agent_env.sandbox.process.layout import PORT, SDK
from agent_env.sandbox.process.sweeper import Sweeper
from agent_env.sandbox.process.tmpfolders import TmpFolders
from agent_env.sandbox.process.waiting import finish

__all__ = ["Cell", "Cells"]

_MIB = 1 << 20
_numbers = itertools.count(1)

_log = logging.getLogger(__name__)


class Cell:
    """Its owner calls `kill()` in a `finally`."""

    def __init__(
        self,
        number: int,
        tier: str,
        server: ForkServer,
        child: Child,
        limits: Limits,
        cgroup: Cgroup | None,
        tmp: Path | None,
        port: int,
    ) -> None:
        self.number = number
        """Unique in this process, and in what `ps` calls it: `env-17`."""
        self.tier = tier
        self.server = server
        self.child = child
        self.port = port
        """What a server that binds a port binds; on this machine's own loopback in the unconfined tier."""
        self._limits = limits
        self._cgroup = cgroup
        self._tmp = tmp
        self._watch: asyncio.Task[None] | None = None
        self._too_much = False
        self._killing: asyncio.Task[None] | None = None

    def why(self, end: ChildEnd | None) -> str:
        """Why it ended, in words."""
        if self._too_much:
            return f"killed: it wrote more than {self._limits.tmp_mib} MiB to its temporary folder"
        if end is None:
            return f"its fork server has ended: {self.server.why_ended}"
        if self._cgroup is not None and self._cgroup.out_of_memory():
            return f"killed: out of memory ({self._limits.memory_mib} MiB)"
        code = os.waitstatus_to_exitcode(end.status)
        if code >= 0:
            return f"exit status {code}"
        number = -code
        if number == signal.SIGXCPU or (number == signal.SIGKILL and end.cpu_seconds >= self._limits.cpu_seconds):
            return f"killed: it used up its {self._limits.cpu_seconds} s of CPU time"
        return f"killed by signal {signal.Signals(number).name}"

    async def kill(self) -> None:
        """End everything in it and remove what it had. Idempotent, bounded."""
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill())
        await asyncio.shield(self._killing)

    async def _kill(self) -> None:
        try:
            if self._watch is not None:
                self._watch.cancel()
            if self.tier == "unconfined":
                self.child.kill_group()
            await self.child.kill()
        finally:
            if self._cgroup is not None:
                await self._cgroup.release()
            if self._tmp is not None:
                await TmpFolders.remove(self._tmp)

    def watch(self, folders: TmpFolders) -> None:
        """Without a file system of its own: look how much it writes."""

        def end() -> None:
            self._too_much = True
            self.child.signal(signal.SIGKILL)

        if self._tmp is not None:
            watching = folders.watch(self._tmp, self._limits.tmp_mib * _MIB, end)
            self._watch = asyncio.get_running_loop().create_task(watching)


class Cells:
    """Makes them, in one tier. `close()` it when all of its cells are closed."""

    def __init__(self, tier: str, *, cgroups: bool = True) -> None:
        """Reaps what dead owners left. cgroups: use them where they can be written."""
        self.tier = tier
        self._cgroups = Cgroups.find() if cgroups and tier == "namespaces" else None
        self._folders = None if tier == "namespaces" else TmpFolders()

    @property
    def has_cgroups(self) -> bool:
        return self._cgroups is not None

    @property
    def sdk(self) -> str:
        """Where a child finds `agent_env.env`."""
        return SDK if self._folders is None else str(self._folders.library)

    def sweeper(self) -> Sweeper:
        """What removes the folders of all cells if this process is killed."""
        return Sweeper(self._folders.base if self._folders else None, self._cgroups.folders if self._cgroups else ())

    async def open(
        self, server: ForkServer, role: str, limits: Limits, *, plain: bool = False, tcp: bool = False, relay: int = 0
    ) -> Cell:
        """A child that runs. The arguments are Spawn's; relay: its relay_port.

        Raises ForkServerEnded, DeployFailed, OSError.
        """
        number = next(_numbers)
        cgroup, folder = self._cgroup(limits), None
        try:
            folder = self._folders.make(server.uid, limits.tmp_mib * _MIB) if self._folders else None
            port = _free_port() if self.tier == "unconfined" and role != "verifier" else PORT
            order = Spawn(
                role=role,
                plain=plain,
                tcp=tcp and self.tier == "namespaces",
                name=f"{'verifier' if role == 'verifier' else 'env'}-{number}",
                memory=limits.memory_mib * _MIB,
                processes=limits.processes,
                cpu_seconds=limits.cpu_seconds,
                open_files=limits.open_files,
                file_size=max(limits.tmp_mib, 1) * _MIB,
                tmp_size=limits.tmp_mib * _MIB,
                environ={} if role == "verifier" else {"MCP_PORT": str(port)},
                tmp=str(folder or ""),
                relay_port=relay,
            )
            child = await server.spawn(
                order,
                stream=role == "verifier",
                keep_output=limits.output_kib << 10,
                open_doors=cgroup.open_doors if cgroup else list,
            )
            cell = Cell(number, self.tier, server, child, limits, cgroup, folder, port)
        except BaseException:
            if cgroup is not None:
                await finish(cgroup.release())
            if folder is not None:
                await finish(TmpFolders.remove(folder))
            raise
        if self._folders is not None:
            cell.watch(self._folders)
        return cell

    def close(self) -> None:
        if self._cgroups is not None:
            self._cgroups.close()
        if self._folders is not None:
            self._folders.close()

    def _cgroup(self, limits: Limits) -> Cgroup | None:
        if self._cgroups is None:
            return None
        try:
            return self._cgroups.make(limits)
        except OSError as error:
            _log.warning("envs run without cgroups of their own from now on: %s", error)
            self._cgroups = None
            return None


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
