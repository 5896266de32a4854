"""The host's end of a container without a network: a unix socket in a folder that is mounted into it.

The container dials; each connection says in its first line what it is for. Nothing that comes is trusted: a greeting
has a deadline and a size, and one that keeps making nonsense is not listened to any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["Listener"]

SOCKET = "host.sock"
GREETING_TIMEOUT = 5.0
LONGEST_GREETING = 32
GREETINGS_AT_ONCE = 64
STRIKES = 256
"""After so many refused connections, the rest is not accepted."""


class Listener:
    """Accepts until closed, and gives each connection with its greeting (without the newline) to `handle`, which says
    whether it wanted it: True passes ownership, False has it closed."""

    def __init__(self, folder: Path, handle: Callable[[str, socket.socket], bool]) -> None:
        """`folder` is made, and removed by `close`. Raises OSError."""
        self.folder = folder
        self._handle = handle
        self._greetings: set[asyncio.Task[None]] = set()
        self._strikes = 0
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(str(folder / SOCKET))
            os.chmod(
                folder / SOCKET, 0o666
            )  # the container's user is another one; the folder's parent keeps others out
            self._socket.listen(128)
        except BaseException:
            self._socket.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._accepting = asyncio.create_task(self._accept(), name=f"accept {folder.name}")

    def close(self) -> None:
        """Idempotent. Connections that were handed over are their owner's to close."""
        self._accepting.cancel()
        for task in self._greetings:
            task.cancel()
        self._socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while self._strikes < STRIKES:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:  # out of descriptors, or the peer is gone again: not for ever
                await asyncio.sleep(0.1)
                continue
            if len(self._greetings) >= GREETINGS_AT_ONCE:
                self._strikes += 1
                connection.close()
                continue
            task = asyncio.create_task(self._greet(connection))
            self._greetings.add(task)
            task.add_done_callback(self._greetings.discard)

    async def _greet(self, connection: socket.socket) -> None:
        wanted = False
        try:
            connection.setblocking(False)
            with contextlib.suppress(OSError, TimeoutError, UnicodeDecodeError):
                async with asyncio.timeout(GREETING_TIMEOUT):
                    wanted = self._handle(await _line(connection), connection)
        finally:
            if not wanted:
                self._strikes += 1
                connection.close()


async def _line(connection: socket.socket) -> str:
    """Up to the newline and no further: what follows is for the connection's owner."""
    loop = asyncio.get_running_loop()
    line = b""
    while not line.endswith(b"\n"):
        byte = await loop.sock_recv(connection, 1)
        if not byte or len(line) > LONGEST_GREETING:
            raise OSError("no greeting")
        line += byte
    return line[:-1].decode()
