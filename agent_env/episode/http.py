"""HTTP/1.1 to an env's server, over one kept connection. The env may be hostile: whatever it sends, a request ends in
a bounded `Response` or in a `PeerError`.

Time is the caller's to bound (`asyncio.timeout`); a request that is cancelled or fails closes its connection, since
half an answer may still be on its way. No request is ever sent twice.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import h11

__all__ = ["MAX_BODY_BYTES", "BadReply", "ConnectionLost", "HttpClient", "PeerError", "Response", "TooLarge"]

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of one answer. A tool result of 20 MB comes twice (as text and as structured content) from the public SDKs."""
MAX_HEAD_BYTES = 64 * 1024
MAX_INTERIM = 16
"""1xx answers before the answer."""
FREE_PIECES = 2_000
"""An answer may come in so many pieces, whatever their size; beyond, they must hold 64 bytes on average. Each piece
costs our event loop some 10 us, so a body of one-byte chunks would stall every other episode."""
IDLE_SECONDS = 2.0
"""A connection idle for longer isn't used again: uvicorn closes after 5, and a request that meets the close is lost."""
DRAIN_SECONDS = 0.05
"""How long a request waits for the end of the answer before, where only the end is missing."""
HOST = "127.0.0.1:18765"
"""Servers that guard against DNS rebinding answer no other name. The port is the public env protocol's."""


class PeerError(Exception):
    """The env's server broke the protocol or went away. Never the policy's doing."""


class ConnectionLost(PeerError):
    """The connection ended before the whole answer was there; the request may or may not have been carried out."""


class BadReply(PeerError):
    """What came is no HTTP, or not what was asked for."""


class TooLarge(PeerError):
    """The answer is longer than MAX_BODY_BYTES."""


@dataclass(slots=True)
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """Names in lower case; of equal names the last."""
    body: bytearray = field(default_factory=bytearray)


Enough = Callable[[Response], bool]
"""Called after each piece of the body: True once the caller has what it needs of an answer that may go on."""


class HttpClient:
    """One request at a time; opens a connection when it has none that can be used."""

    def __init__(self, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        """connect: gives a connected non-blocking stream socket, which is the client's from then on."""
        self._connect = connect
        self._wire: _Wire | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        enough: Enough | None = None,
    ) -> Response:
        """Send one request and return its answer, whatever its status.

        Raises PeerError, or what `connect` raises. path: must begin with "/"; body: sent as JSON.
        """
        wire = await self._usable()
        try:
            return await wire.exchange(method, path, body, headers, enough)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop the connection. The client stays usable: the next request opens another."""
        if self._wire is not None:
            self._wire.abort()
            self._wire = None

    async def _usable(self) -> _Wire:
        if self._wire is not None:
            if await self._wire.reusable():
                return self._wire
            self.close()
        sock = await self._connect()
        try:
            _, self._wire = await asyncio.get_running_loop().create_connection(_Wire, sock=sock)
        except BaseException:
            sock.close()
            raise
        return self._wire


class _Wire(asyncio.Protocol):
    """One connection, and the exchange that is under way on it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._transport: asyncio.Transport
        self._response = Response()
        self._enough: Enough | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._finished: asyncio.Future[None] | None = None
        """Done when the answer's last byte is there; None while nothing was asked yet."""
        self._pieces = 0
        self._interim = 0
        self._used = 0.0
        self._closed = False

    async def exchange(
        self, method: str, path: str, body: bytes | None, headers: Sequence[tuple[str, str]], enough: Enough | None
    ) -> Response:
        fields = [("Host", HOST), *headers]
        if body is not None:
            fields += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        try:
            data = self._send(h11.Request(method=method, target=path, headers=fields))
        except (h11.LocalProtocolError, UnicodeError) as error:  # the path and some headers are the env's own words
            raise BadReply(f"the request would not be HTTP: {error}") from None
        if body is not None:
            data += self._send(h11.Data(data=body))
        data += self._send(h11.EndOfMessage())
        self._response, self._enough, self._pieces, self._interim = Response(), enough, 0, 0
        self._answer, self._finished = self._loop.create_future(), self._loop.create_future()
        if self._closed:
            raise ConnectionLost("the env closed the connection")
        self._transport.write(data)
        try:
            return await self._answer
        finally:
            self._used = self._loop.time()

    async def reusable(self) -> bool:
        """Whether another request can be sent; waits a moment for an answer that is all but read."""
        if self._closed or self._loop.time() - self._used > IDLE_SECONDS:
            return False
        if self._finished is not None and not self._finished.done():
            await asyncio.wait((self._finished,), timeout=DRAIN_SECONDS)
            if not self._finished.done():
                return False
        # A request still in the send buffer means an answer that came before its question was read.
        if self._closed or self._transport.get_write_buffer_size():
            return False
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
        return self._h11.our_state is h11.IDLE

    def abort(self) -> None:
        self._fail(ConnectionLost("the connection was closed"))

    # ---- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        if self._finished is None or self._finished.done():
            self._fail(BadReply("the env sent something that nothing had asked for"))
            return
        self._receive(data)

    def eof_received(self) -> None:
        if self._finished is not None and not self._finished.done():
            self._receive(b"")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ConnectionLost(f"the env closed the connection before it had answered{f' ({exc})' if exc else ''}"))

    # ---- the exchange --------------------------------------------------------------------------------------------

    def _send(self, event: h11.Event) -> bytes:
        data = self._h11.send(event)
        return data if data is not None else b""

    def _receive(self, data: bytes) -> None:
        try:
            self._h11.receive_data(data)
            while self._take(self._h11.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            if data:
                self._fail(BadReply(f"the env's answer isn't HTTP: {error}"))
            else:
                self._fail(ConnectionLost("the env closed the connection before it had answered"))
        except PeerError as error:
            self._fail(error)

    def _take(self, event: object) -> bool:
        """Take one event of h11's; True while there may be more."""
        response = self._response
        if isinstance(event, h11.Data):
            response.body += event.data
            self._pieces += 1
            if len(response.body) > MAX_BODY_BYTES:
                raise TooLarge(f"the env's answer is longer than {MAX_BODY_BYTES >> 20} MiB")
            if self._pieces > FREE_PIECES + len(response.body) // 64:
                raise BadReply("the env's answer comes in too small pieces")
            if self._enough is not None and self._enough(response):
                self._answered()
            return True
        if isinstance(event, h11.Response):
            response.status = event.status_code
            response.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            return True
        if isinstance(event, h11.InformationalResponse):
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise BadReply(f"the env sent more than {MAX_INTERIM} interim answers")
            return True
        if isinstance(event, h11.EndOfMessage):
            self._answered()
            assert self._finished is not None
            self._finished.set_result(None)
            if self._h11.trailing_data[0] or self._h11.their_state is not h11.DONE:
                self.abort()  # it sent more than its answer, or won't take another request
            return False
        return False  # NEED_DATA; PAUSED and ConnectionClosed come after the end only

    def _answered(self) -> None:
        self._enough = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(self._response)

    def _fail(self, error: PeerError) -> None:
        self._closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._finished is not None and not self._finished.done():
            self._finished.set_result(None)
        self._transport.abort()
