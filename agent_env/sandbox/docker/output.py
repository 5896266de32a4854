"""What a container prints: read from the engine as it comes, of which the end is kept.

Read by `attach`, since an engine may keep no log (log driver `none`), and a log on its disk would have no owner. A
container that prints without end is read slowly, and its own writes wait: that is the limit.
"""

from __future__ import annotations

import asyncio
import socket

__all__ = ["Output"]

HEADER = 8
"""Bytes before each piece: the stream's number, three zeros, the length as a big-endian number. From the engine API's
reference, "Stream format"."""

BURST = 256 * 1024
PAUSE = 0.05
"""After each burst: 5 MB/s at most."""


class Output:
    """Owns the socket. `ended` is done once the container has closed its output, so at its end."""

    def __init__(self, connection: socket.socket, kept: int) -> None:
        """`kept`: bytes."""
        self._connection = connection
        self._connection.setblocking(False)
        self._kept = kept
        self._tail = bytearray()
        self._cut = False
        self.ended = asyncio.create_task(self._read(), name="container output")

    @property
    def text(self) -> str:
        text = self._tail[-self._kept :].decode(errors="replace")
        return f"[...] {text}" if self._cut or len(self._tail) > self._kept else text

    def close(self) -> None:
        self.ended.cancel()
        self._connection.close()

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        header = b""
        left = 0  # of the piece that is being read
        burst = 0
        while True:
            try:
                data = await loop.sock_recv(self._connection, 65536)
            except OSError:
                return
            if not data:
                return
            burst += len(data)
            while data:
                if left:
                    self._keep(data[:left])
                    data, left = data[left:], max(0, left - len(data))
                    continue
                take = HEADER - len(header)
                header, data = header + data[:take], data[take:]
                if len(header) == HEADER:
                    left, header = int.from_bytes(header[4:], "big"), b""
            if burst >= BURST:
                burst = 0
                await asyncio.sleep(PAUSE)

    def _keep(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > 2 * self._kept:
            del self._tail[: -self._kept]
            self._cut = True
