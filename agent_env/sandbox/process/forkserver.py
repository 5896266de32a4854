"""The server's side of a fork server: orders go out in any number at once, children come back as descriptors."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_env.sandbox.interface import DeployFailed, SandboxError
from agent_env.sandbox.process.inside import passing
from agent_env.sandbox.process.inside.child import NAMES_AT_ONCE
from agent_env.sandbox.process.inside.settings import Settings, Spawn
from agent_env.sandbox.process.output import Output
from agent_env.sandbox.process.waiting import finish, is_readable, readable

__all__ = ["Child", "ChildEnd", "ForkServer", "ForkServerEnded", "passed_sockets"]

_MAIN = Path(__file__).with_name("inside") / "main.py"
_AT_ONCE = 16
"""Forks asked for at a time: more would only wait in the socket."""
_KILL_SECONDS = 5.0
_END_SECONDS = 2.0
_Answer = asyncio.Future[tuple[dict[str, Any], list[int]]]


class ForkServerEnded(SandboxError):
    """The fork server isn't there any more; its children aren't either."""


@dataclasses.dataclass(frozen=True, slots=True)
class ChildEnd:
    status: int
    """As of waitpid(2)."""
    cpu_seconds: float


class Child:
    """A process that a fork server forked, and what leads to it. Its owner calls `kill()` in a `finally`."""

    def __init__(self, channel: socket.socket, output: Output) -> None:
        self.channel = channel
        self.output = output
        self.pidfd = -1
        self._init_pidfd = -1
        """Of process 1 of its PID namespace, if that is another one: all end with it."""
        self.ended: asyncio.Future[ChildEnd | None] = asyncio.get_running_loop().create_future()
        """None if the fork server ended and it with it."""
        self._killing: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """In this process's PID namespace; 0 if it has ended."""
        for line in Path(f"/proc/self/fdinfo/{self.pidfd}").read_text().splitlines():
            if line.startswith("Pid:"):
                return max(0, int(line.split()[1]))
        return 0

    def alive(self) -> bool:
        return not self.ended.done() and self.pidfd >= 0 and not is_readable(self.pidfd)

    def forked(self, pidfds: list[int]) -> None:
        self.pidfd, self._init_pidfd = (*pidfds, -1)[:2]

    def signal(self, number: signal.Signals) -> None:
        """To it alone."""
        _send(self.pidfd, number)

    def kill_group(self) -> None:
        """Without a PID namespace: its process group, of which it is the leader, as long as it is there to name it."""
        if self.alive() and (pid := self.pid):
            try:
                os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return

    async def kill(self) -> None:
        """End it (in a PID namespace: with all that it started), and close what leads to it. Idempotent."""
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._kill())
        await asyncio.shield(self._killing)

    async def _kill(self) -> None:
        ends = [fd for fd in (self._init_pidfd, self.pidfd) if fd >= 0]
        for fd in ends:
            _send(fd, signal.SIGKILL)
        try:
            async with asyncio.timeout(_KILL_SECONDS):
                for fd in ends:
                    await readable(fd)
        except TimeoutError:
            pass  # in the kernel's hands: it is dead to everybody, and the kernel will be through with it
        finally:
            self.channel.close()
            self.output.close()
            for fd in ends:
                os.close(fd)
            self.pidfd = self._init_pidfd = -1


def _send(pidfd: int, number: signal.Signals) -> None:
    if pidfd >= 0:
        try:
            signal.pidfd_send_signal(pidfd, number)
        except (ProcessLookupError, PermissionError):
            return


class ForkServer:
    """One process that forks children, under the Python that `python` names."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, output: Output) -> None:
        self.uid = -1
        """Who its children are, outside of any user namespace of theirs."""
        self._process = process
        self._control = control
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._why = ""
        self._count = 0
        self._waiting: dict[int, _Answer] = {}
        self._children: dict[int, Child] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._loop.add_reader(control, self._on_readable)

    @classmethod
    async def start(cls, python: str, settings: Settings) -> ForkServer:
        """Raises DeployFailed with what it printed if it does not come up (the env's script doesn't compile, ...).

        It must be called by a thread that lives as long as the server: the process ends with the thread that made it.
        """
        output = Output(16 << 10)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        try:
            with theirs:
                process = subprocess.Popen(  # noqa: ASYNC220 (a vfork; a thread that ends would end it)
                    [python, "-I", "-u", str(_MAIN), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env={"MALLOC_ARENA_MAX": "4"},
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=output.write_end,
                    stderr=output.write_end,
                    start_new_session=True,  # a terminal's Ctrl-C is for the server, which then ends its envs in order
                )
        except BaseException:
            control.close()
            output.close()
            raise
        output.passed()
        self = cls(process, control, output)
        try:
            passing.send(control, json.dumps(dataclasses.asdict(settings)).encode())
            await self._ready
        except BaseException as error:
            await finish(self.close())
            if isinstance(error, (ForkServerEnded, OSError)):
                raise DeployFailed(f"its fork server ended at its start:\n{output.text.strip()}") from None
            raise
        return self

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    @property
    def why_ended(self) -> str:
        return self._why or "it was closed"

    async def spawn(
        self,
        order: Spawn,
        *,
        stream: bool = False,
        keep_output: int = 1 << 16,
        open_doors: Callable[[], list[int]] = list,
    ) -> Child:
        """Fork a child, which is running when this returns. open_doors: opens the files by which it enters its cgroups,
        writing 0 to each, before all else.

        Raises ForkServerEnded, or DeployFailed if no process can be made. Cancelled: the child is killed.
        """
        async with self._slots:
            kind = socket.SOCK_STREAM if stream else socket.SOCK_SEQPACKET
            ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
            ours.setblocking(False)
            child = Child(ours, Output(keep_output))
            try:
                with theirs:
                    try:
                        doors = open_doors()
                    except OSError as error:
                        raise DeployFailed(f"its cgroup can't be entered: {error}") from None
                    try:
                        fds = [theirs.fileno(), child.output.write_end, *doors]
                        number, answer = self._order({"op": "spawn", "spawn": dataclasses.asdict(order)}, fds)
                    finally:
                        for fd in doors:
                            os.close(fd)
                self._children[number] = child
                child.output.passed()
                await finish(self._forked(child, answer))
            except BaseException:
                await finish(child.kill())
                raise
            return child

    async def _forked(self, child: Child, answer: _Answer) -> None:
        """Never cancelled (see `finish`): a fork under way comes back, in milliseconds, and has to be ended then."""
        reply, received = await answer
        if "error" in reply:
            raise DeployFailed(f"no process could be made: {reply['error']}")
        child.forked(received)

    async def more_sockets(self, namespace: int, count: int) -> list[socket.socket]:
        """Unconnected TCP sockets, made in the network namespace that a descriptor names. Raises ForkServerEnded."""
        async with self._slots:
            _, answer = self._order({"op": "sockets", "count": count}, [namespace])
            return passed_sockets((await answer)[1])

    async def preload(self, modules: list[str]) -> str | None:
        """Import libraries once for all children. Returns why they can't be forked, if so: then close this server."""
        for start in range(0, len(modules), NAMES_AT_ONCE):
            order = {"op": "preload", "modules": modules[start : start + NAMES_AT_ONCE]}
            reply, _ = await self._order(order, [])[1]
            if reply["refused"] is not None:
                return str(reply["refused"])
        return None

    async def cache_bytecode(self, files: list[str]) -> None:
        """Compile the env's own modules once for all children."""
        await self._order({"op": "bytecode", "files": files[:NAMES_AT_ONCE]}, [])[1]

    async def close(self) -> None:
        """End it and all its children. Idempotent, bounded."""
        self._end("it was closed")
        try:
            # Its control socket has ended, so it ends itself, and is gone when its namespace is empty.
            if not await self._gone(_END_SECONDS):
                self._process.kill()
                await self._gone(_KILL_SECONDS)
        finally:
            if self._process.poll() is None:
                self._process.kill()
            self._output.close()

    async def _gone(self, seconds: float) -> bool:
        if self._process.poll() is not None:
            return True
        pidfd = os.pidfd_open(self._process.pid)
        try:
            async with asyncio.timeout(seconds):
                await readable(pidfd)
        except TimeoutError:
            return False
        finally:
            os.close(pidfd)
        return self._process.poll() is not None

    def _order(self, order: dict[str, Any], fds: list[int]) -> tuple[int, _Answer]:
        if not self.alive:
            raise ForkServerEnded(f"its fork server has ended: {self.why_ended}")
        self._count += 1
        answer: _Answer = self._loop.create_future()
        try:
            passing.send(self._control, json.dumps({**order, "id": self._count}).encode(), fds)
        except OSError as error:
            raise ForkServerEnded(f"its fork server can't be reached: {error.strerror}") from None
        self._waiting[self._count] = answer
        return self._count, answer

    def _on_readable(self) -> None:
        while True:
            try:
                message, fds = passing.receive(self._control)
            except BlockingIOError:
                return
            except OSError:
                message, fds = b"", []
            if not message:
                self._end(self._output.text.strip()[-2000:] or "killed")
                return
            self._take(json.loads(message), fds)

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        if "ready" in message:
            self.uid = message["uid"]
            if not self._ready.done():
                self._ready.set_result(None)
        elif "ended" in message:
            child = self._children.pop(message["ended"], None)
            if child is not None and not child.ended.done():
                child.ended.set_result(ChildEnd(message["status"], message["cpu"]))
        else:
            answer = self._waiting.pop(message["re"])
            if "error" in message:
                self._children.pop(message["re"], None)
            if not answer.done():
                answer.set_result((message, fds))
                return
            for fd in fds:  # sockets whose asker has been cancelled
                os.close(fd)

    def _end(self, why: str) -> None:
        if self._ended.done():
            return
        self._why = why
        self._ended.set_result(None)
        self._loop.remove_reader(self._control)
        self._control.close()
        error = ForkServerEnded(f"its fork server has ended: {why}")
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._waiting.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: there may be nobody left to ask
        for child in self._children.values():
            if not child.ended.done():
                child.ended.set_result(None)
        self._waiting.clear()
        self._children.clear()


def passed_sockets(fds: list[int]) -> list[socket.socket]:
    """Python takes a passed descriptor for a blocking one, whatever its flags say."""
    made = [socket.socket(fileno=fd) for fd in fds]
    for sock in made:
        sock.setblocking(False)
    return made
