"""One running env: how it is reached, watched and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import DeployFailed, EnvInstance, EnvLost
from agent_env.sandbox.process.cells import Cell
from agent_env.sandbox.process.forkserver import ForkServerEnded, passed_sockets
from agent_env.sandbox.process.inside import passing
from agent_env.sandbox.process.waiting import readable, receive_text, send_fds

__all__ = ["ProcessEnv"]

_REFUSED_SECONDS = 5.0
"""A server that accepted once may be refusing for a moment; longer means that it has stopped listening."""
_RETRY_SECONDS = 0.002
_FRESH_SECONDS = 2.0
"""How long the connection that showed that the server accepts is good for: uvicorn closes one after 5 idle seconds."""


class ProcessEnv(EnvInstance):
    """Reached in one of two ways, which a rehearsal finds out: its server takes connections that are passed to it
    (AGENTENV_ACCEPT_FD), or it binds a port, to which sockets of its own network namespace are connected."""

    def __init__(self, env: EnvSpec, instance_id: str, cell: Cell, on_gone: Callable[[ProcessEnv], None]) -> None:
        self.env = env
        self.id = instance_id
        self._cell = cell
        self._child = cell.child
        self._on_gone = on_gone
        self._tcp: bool | None = None
        self._namespace = -1
        self._sockets: list[socket.socket] = []
        self._accepted: socket.socket | None = None
        self._accepted_at = 0.0
        self._introduction = b""
        self._why: str | None = None
        self._killing: asyncio.Task[None] | None = None

    @property
    def tcp(self) -> bool:
        """Whether it is reached by the port that its server binds; else by passing it sockets."""
        return bool(self._tcp)

    @property
    def _on_host(self) -> bool:
        """Its server binds this machine's own loopback: the tier without walls."""
        return self._cell.tier == "unconfined"

    async def ready(self, *, tcp: bool | None) -> None:
        """Return when its server accepts connections. tcp: how it is known to be reached.

        Raises DeployFailed, with the end of its output, if it ends instead.
        """
        if tcp is not False and not self._on_host:
            await self._take_sockets()
        try:
            if tcp is None:
                await self._first_of_both()
            elif tcp:
                await self._accepts()
            else:
                await self._says_ready()
        except _Ended:
            await self._fail_deploy()

    @property
    def introduction(self) -> bytes:
        return self._introduction

    async def connect(self) -> socket.socket:
        if not self._child.alive():
            raise await self._lost()
        try:
            if self._accepted is not None:
                sock, self._accepted = self._accepted, None
                if asyncio.get_running_loop().time() - self._accepted_at < _FRESH_SECONDS:
                    return sock
                sock.close()
            if self._tcp:
                return await self._connect_tcp(_REFUSED_SECONDS)
            return await self._connect_passed()
        except (_Ended, ForkServerEnded, OSError) as error:
            if not self._child.alive():
                raise await self._lost() from None
            raise EnvLost(
                f"env {self.env.name!r} can't be reached: {error or 'its server stopped listening'}"
            ) from None

    async def wait(self) -> str:
        if self._why is None:
            end = await asyncio.shield(self._child.ended)
            if self._why is None:
                self._why = self._cell.why(end)
        return self._why

    @property
    def output(self) -> str:
        return self._child.output.text

    async def kill(self) -> None:
        if self._killing is None:
            if self._why is None and self._child.alive():
                self._why = "it was ended by its server"
            self._killing = asyncio.get_running_loop().create_task(self._kill())
        await asyncio.shield(self._killing)

    async def imported(self, seconds: float) -> dict[str, str]:
        """A rehearsal's: the names of all modules that it has imported, in order, with the files of its own ones."""
        names: dict[str, str] = {}
        self._child.signal(signal.SIGUSR1)
        async with asyncio.timeout(seconds):
            while (message := await receive_text(self._child.channel, passing.MAX_MESSAGE)) not in (b"", b"\n"):
                for line in message.decode(errors="replace").split("\n"):
                    name, _, file = line.partition("\t")
                    names[name] = file
        return names

    # ---- how it comes up ---------------------------------------------------------------

    async def _take_sockets(self) -> None:
        """The child passes them out before it runs anybody's code; it passes none in a tier without a network."""
        await readable(self._child.channel.fileno())
        message, fds = passing.receive(self._child.channel)
        if message != b"sockets":
            await self._fail_deploy()
        self._namespace, self._sockets = fds[0], passed_sockets(fds[1:])

    async def _first_of_both(self) -> None:
        loop = asyncio.get_running_loop()
        ways = {loop.create_task(self._says_ready()): False, loop.create_task(self._accepts()): True}
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self._tcp = ways[min(done, key=lambda task: ways[task])]
        finally:
            for task in ways:
                task.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _says_ready(self) -> None:
        word, _, self._introduction = (await receive_text(self._child.channel, passing.MAX_MESSAGE)).partition(b"\n")
        if word != b"ready":
            await readable(self._child.pidfd)  # no word but its end: a server that closes the socket binds its port
            raise _Ended
        self._tcp = False

    async def _accepts(self) -> None:
        self._accepted = await self._connect_tcp(None)
        self._accepted_at = asyncio.get_running_loop().time()
        self._tcp = True

    async def _fail_deploy(self) -> None:
        why = await self.wait()
        if self._cell.tier == "landlock":
            why += " (sandbox tier landlock: no env that binds a port or starts processes can run)"
        raise DeployFailed(self._with_output(f"env {self.env.name!r} did not come up: {why}"))

    # ---- how it is reached -------------------------------------------------------------

    async def _connect_passed(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                ours.setblocking(False)
                await send_fds(self._child.channel, b"connection", [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        return ours

    async def _connect_tcp(self, seconds: float | None) -> socket.socket:
        """Connect one of the sockets of its network namespace. A refusal means that the server doesn't listen (yet)."""
        if self._on_host:
            sock = socket.socket()
            sock.setblocking(False)
        else:
            if not self._sockets:
                self._sockets = await self._cell.server.more_sockets(self._namespace, 4)
            sock = self._sockets.pop()
        loop = asyncio.get_running_loop()
        until = None if seconds is None else loop.time() + seconds
        try:
            while True:
                try:
                    await loop.sock_connect(sock, ("127.0.0.1", self._cell.port))
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return sock
                except ConnectionAbortedError:
                    continue  # what Linux says once after a refusal, before the same socket may begin anew
                except ConnectionRefusedError:
                    if not self._child.alive() or (until is not None and loop.time() > until):
                        raise _Ended from None
                    await asyncio.sleep(_RETRY_SECONDS)
        except BaseException:
            sock.close()
            raise

    # ---- how it ends -------------------------------------------------------------------

    async def _lost(self) -> EnvLost:
        return EnvLost(self._with_output(f"env {self.env.name!r} has ended: {await self.wait()}"))

    def _with_output(self, text: str) -> str:
        tail = self.output.strip()
        return f"{text}\n{tail}" if tail else f"{text} (it printed nothing)"

    async def _kill(self) -> None:
        try:
            await self._cell.kill()
        finally:
            for sock in (*self._sockets, self._accepted):
                if sock is not None:
                    sock.close()
            if self._namespace >= 0:
                os.close(self._namespace)
                self._namespace = -1
            self._on_gone(self)


class _Ended(Exception):
    """The env's process ended, or its server stopped listening."""
