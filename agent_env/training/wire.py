"""Connections of the chat, for httpcore: asyncio's own streams, and a request in one piece.

httpcore's own go through anyio, and send a request's head and body apart: the session server then wakes up twice, and
it all takes a quarter of a turn's CPU time more. Deadlines are the caller's (`asyncio.timeout`); the arguments for them
are ignored.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

__all__ = ["Backend", "NotTrusted"]

CHUNK = 1 << 16


class NotTrusted(httpcore.ConnectError):
    """Nobody who is trusted vouches for the server's certificate, which doesn't get better by trying again."""


class Backend(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=CHUNK, happy_eyeballs_delay=0.25)
            sock = writer.get_extra_info("socket")
            for option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *(socket_options or ())):
                sock.setsockopt(*option)
        except (OSError, UnicodeError) as error:  # UnicodeError: of a host that is no name
            raise httpcore.ConnectError(str(error)) from error
        return _Stream(reader, writer)


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._unsent: list[bytes] = []

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Kept until an answer is waited for."""
        self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            if self._unsent:
                # Sent as fast as it is taken, meanwhile: a server may answer, and close, before it has read all.
                self._writer.write(b"".join(self._unsent))
                self._unsent.clear()
            return await self._reader.read(max_bytes)
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except OSError as error:
            await self.aclose()
            kind = NotTrusted if isinstance(error, ssl.SSLCertVerificationError) else httpcore.ConnectError
            raise kind(str(error)) from error
        return self

    async def aclose(self) -> None:
        self._writer.close()

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # of an idle connection: the server has closed it, or said what nobody asked for
            return self._reader.at_eof() or _is_readable(self._writer.get_extra_info("socket"))
        return self._writer.get_extra_info({"server_addr": "peername", "client_addr": "sockname"}.get(info, info))


def _is_readable(sock: Any) -> bool:
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))
