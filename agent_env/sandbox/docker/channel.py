"""Connections to an env that dials the host: the control connection asks for one, and the env makes it."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from ipaddress import IPv4Interface, ip_address
from pathlib import Path
from typing import Protocol

from agent_env.sandbox.docker.listener import Listener
from agent_env.sandbox.interface import SandboxError

__all__ = ["Channel", "DialledChannel", "PortChannel"]


class Channel(Protocol):
    """How the host reaches a container's server."""

    async def up(self) -> str:
        """Return once the server accepts connections, with how it is reached: `control`, `relay` or `port`."""

    async def connect(self) -> socket.socket:
        """A connected, non-blocking socket, the caller's to close. Raises ConnectionError if the server is gone."""

    async def gone(self) -> None:
        """Return when the server can't be reached any more, if that can be told."""

    def close(self) -> None: ...


class DialledChannel:
    """The env connects to our socket and says `control` (or our own script beside it says `relay`). For every byte `C`
    that we send on that connection it opens another and says `http`. The end of the control connection is the end of
    the env, on both sides."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        self._up: asyncio.Future[str] = loop.create_future()
        self._gone: asyncio.Future[None] = loop.create_future()
        self._waiting: deque[asyncio.Future[socket.socket]] = deque()
        self._control: socket.socket | None = None
        self._watching: asyncio.Task[None] | None = None
        self._listener = Listener(folder, self._greeted)

    async def up(self) -> str:
        return await asyncio.shield(self._up)

    async def gone(self) -> None:
        await asyncio.shield(self._gone)

    async def connect(self) -> socket.socket:
        if self._control is None or self._gone.done():
            raise ConnectionError("it has ended")
        waiter: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            self._control.send(b"C")
            return await waiter
        except BaseException as error:
            # One that is given up stays in the row: the connection that it asked for is still to come.
            if not waiter.cancel() and not waiter.cancelled() and waiter.exception() is None:
                waiter.result().close()
            if isinstance(error, OSError):
                raise ConnectionError(str(error)) from error
            raise

    def close(self) -> None:
        self._end()
        self._listener.close()
        if self._watching is not None:
            self._watching.cancel()
        if self._control is not None:
            self._control.close()

    def _greeted(self, greeting: str, connection: socket.socket) -> bool:
        if greeting in ("control", "relay") and self._control is None and not self._gone.done():
            self._control = connection
            self._watching = asyncio.create_task(self._watch(connection))
            self._up.set_result(greeting)
            return True
        if greeting == "http" and self._waiting:
            waiter = self._waiting.popleft()
            if waiter.done():
                connection.close()  # nobody waits for it any more; it was asked for all the same
            else:
                waiter.set_result(connection)
            return True
        return False

    async def _watch(self, control: socket.socket) -> None:
        try:
            while await asyncio.get_running_loop().sock_recv(control, 1024):
                pass
        except OSError:
            pass
        self._end()

    def _end(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        if not self._up.done():
            self._up.set_exception(ConnectionError("it has ended"))
            self._up.exception()  # nobody may have asked
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(ConnectionError("it has ended"))


class PortChannel:
    """A server that listens on a port of the container's own network address."""

    def __init__(self, address: IPv4Interface, port: int) -> None:
        self._address = (str(address.ip), port)
        self._network = address.network
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def up(self) -> str:
        """Connecting is refused until the server listens. Raises SandboxError if this machine has no way there."""
        while True:
            try:
                (await self.connect()).close()
            except ConnectionError:
                await asyncio.sleep(0.02)
            else:
                return "port"

    async def gone(self) -> None:
        """A port can't tell: the container's end does."""
        await asyncio.shield(self._closed)

    async def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(connection, self._address)
        except OSError as error:
            connection.close()
            raise ConnectionError(str(error)) from error
        except BaseException:
            connection.close()
            raise
        # Without an address of ours in that network, some gateway has answered, and not the env.
        if ip_address(connection.getsockname()[0]) not in self._network:
            connection.close()
            raise SandboxError(f"this machine is not in the network {self._network} of the container")
        return connection

    def close(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
