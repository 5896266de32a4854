"""What breaks things: a server in a process that can be killed, and a proxy that cuts connections."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).parents[2]
FRAGILE = str(Path(__file__).parent / "bundle")


class ServerProcess:
    """A real server of a bundle, in a process of its own, always on the same port."""

    def __init__(self, bundle: str = FRAGILE, capacity: int = 8) -> None:
        self.bundle = bundle
        self.capacity = capacity
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Returns when it answers."""
        command = [sys.executable, "-m", "tests.faults.serve", self.bundle, str(self.port), str(self.capacity)]
        self._process = subprocess.Popen(command, cwd=ROOT)  # noqa: ASYNC220
        async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False) as client:
            while True:
                try:
                    await client.get(f"{self.url}/health")
                    return
                except httpx.HTTPError:
                    assert self._process.poll() is None, "the server didn't start"
                    await asyncio.sleep(0.05)

    async def stop(self, number: int = signal.SIGTERM) -> list[psutil.Process]:
        """Signal it and wait for its end. Returns the processes that it had, some of which may be ending still."""
        assert self._process is not None
        processes = self.processes()
        self._process.send_signal(number)
        await asyncio.to_thread(self._process.wait, 30)
        self._process = None
        return processes

    def processes(self) -> list[psutil.Process]:
        """Every process under the server's."""
        return psutil.Process(self.pid).children(recursive=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill_envs(self, most: int = 1000) -> int:
        """SIGKILL every env, or `most`. Returns how many processes that were."""
        killed = 0
        for process in self.processes():
            try:
                if killed < most and process.name().startswith("env-"):
                    process.kill()
                    killed += 1
            except psutil.NoSuchProcess:
                continue
        return killed

    async def status(self) -> dict[str, Any]:
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            found: dict[str, Any] = (await client.get(f"{self.url}/status")).json()
            return found

    async def empty(self, seconds: float = 20.0) -> None:
        """Wait until no env is left."""
        async with asyncio.timeout(seconds):
            while (await self.status())["live"]:
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ServerProcess]:
        await self.start()
        try:
            yield self
        finally:
            if self._process is not None:
                await self.stop()


class Flow(Enum):
    """What the proxy does with what comes."""

    PASS = "pass"
    HOLD = "hold"
    """Take it, and pass nothing on: the other end looks alive and is silent."""
    TRUNCATE = "truncate"
    """Pass a few bytes of the server's next answer on, then cut."""


class Proxy:
    """A TCP proxy to `port`. Faults hit the connections that are open; later ones do what `begin_with` says."""

    TRUNCATED = 7

    def __init__(self, port: int) -> None:
        self.target = port
        self.begin_with = Flow.PASS
        self.url = ""
        self._open: dict[asyncio.Task[None], _Link] = {}

    def cut(self) -> None:
        """Reset every connection."""
        for link in self._open.values():
            link.abort()

    def set(self, flow: Flow) -> None:
        """Change what happens on every open connection."""
        for link in self._open.values():
            link.flow = flow
            link.changed.set()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        link = _Link(self.begin_with, writer)
        self._open[task] = link
        try:
            await link.passing()
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
            link.writers.append(back)
            async with asyncio.TaskGroup() as both:
                both.create_task(link.copy(reader, back))
                both.create_task(link.copy(there, writer, answers=True))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            link.abort()
            del self._open[task]

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Proxy]:
        server = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)


class _Link:
    """One connection through the proxy."""

    def __init__(self, flow: Flow, writer: asyncio.StreamWriter) -> None:
        self.flow = flow
        self.changed = asyncio.Event()
        self.writers = [writer]

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()

    async def passing(self) -> None:
        """Wait until the flow is not HOLD."""
        while self.flow is Flow.HOLD:
            self.changed.clear()
            await self.changed.wait()

    async def copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        while data := await reader.read(65536):
            await self.passing()
            if answers and self.flow is Flow.TRUNCATE:
                writer.write(data[: Proxy.TRUNCATED])
                await writer.drain()
                break
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # ends the other direction too
