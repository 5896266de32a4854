"""A relay of connections: what a verifier connects to, and what its episode's env is."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

__all__ = ["Connect", "Relay"]

_MAX_CONNECTIONS = 64
_CHUNK = 1 << 16

Connect = Callable[[], Awaitable[socket.socket]]

_log = logging.getLogger(__name__)


class Relay:
    """Joins each connection that `listener` accepts to a new one that `connect` gives, until it's closed."""

    def __init__(self, listener: socket.socket, connect: Connect) -> None:
        self._listener = listener
        self._connect = connect
        self._joined: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        # Not sock_accept: cancelled just as a connection comes, asyncio's loses the connection and logs a traceback.
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Ends every connection; the listener stays its owner's."""
        self._loop.remove_reader(self._listener)
        for task in self._joined:
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # out of descriptors: the verifier misses its deadline
            self._loop.remove_reader(self._listener)
            _log.warning("a verifier's connection can't be accepted: %s", error)
            return
        if len(self._joined) >= _MAX_CONNECTIONS:
            sock.close()
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._join(sock))
        self._joined.add(task)
        task.add_done_callback(self._joined.discard)

    async def _join(self, one: socket.socket) -> None:
        with one:
            try:
                other = await self._connect()
            except Exception as error:  # an env that has ended: the verifier finds its connection closed
                _log.debug("a verifier's connection finds no env: %s", error)
                return
            with other:
                ways = [asyncio.ensure_future(_pump(one, other)), asyncio.ensure_future(_pump(other, one))]
                try:
                    await asyncio.gather(*ways)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(source, _CHUNK):
            await loop.sock_sendall(target, data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
