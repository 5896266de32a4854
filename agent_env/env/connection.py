"""One client's connection: HTTP/1.1 requests in, responses out, one after the other."""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from agent_env.env.http1 import MAX_BODY, MAX_HEAD, BadRequest, Request, RequestParser, Response, json_response
from agent_env.env.reactor import READ, WRITE, Reactor
from agent_env.env.service import log_failure

if TYPE_CHECKING:
    import asyncio

__all__ = ["Connection"]

READ_SIZE = 256 * 1024
"""Bytes taken at a time."""


class Connection:
    """Owns its socket, from now until the client closes it or it has to be closed. The end of a connection cancels the
    request in progress."""

    def __init__(
        self, reactor: Reactor, sock: socket.socket, handle: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> None:
        self._reactor = reactor
        self._sock = sock
        self._handle = handle
        self._parser = RequestParser()
        self._task: asyncio.Task[Response] | None = None
        self._unsent = memoryview(b"")
        self._closing = False
        """Close once all is sent."""
        self._dropped: int | None = None
        """Bytes read and dropped since the client was refused."""
        self._events = 0
        sock.setblocking(False)
        self._watch()

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    def close(self) -> None:
        """Idempotent."""
        if not self.closed:
            self._reactor.forget(self._sock.fileno())
            self._sock.close()
        if self._task is not None:
            self._task.cancel()

    def _on_ready(self, events: int) -> None:
        try:
            if events & WRITE:
                self._flush()
            if events & ~WRITE:  # also what says that the connection is broken: reading tells
                self._receive()
            self._advance()
        except OSError:
            self.close()
        except Exception:
            log_failure("a connection")
            self.close()

    def _watch(self) -> None:
        """Read, unless the client is far ahead of its answers; write, if there's something to."""
        ahead = (self._task is not None or bool(self._unsent)) and self._parser.buffered > MAX_HEAD
        events = (0 if ahead else READ) | (WRITE if self._unsent else 0)
        if events != self._events:
            self._reactor.watch(self._sock.fileno(), events, self._on_ready)
            self._events = events

    def _receive(self) -> None:
        if self.closed:
            return
        try:
            data = self._sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            self.close()
        elif self._dropped is None:
            self._parser.feed(data)
        else:
            self._dropped += len(data)
            if self._dropped > MAX_BODY:
                self.close()

    def _advance(self) -> None:
        """Serve what has come, until a request has to wait for its answer or the client for more to read."""
        while not (self.closed or self._task or self._unsent or self._dropped is not None):
            try:
                request = self._parser.next()
            except BadRequest as error:
                self._refuse(error)
                break
            if request is not None:
                self._begin(request)
            elif self._parser.awaits_continue():
                self._send(b"HTTP/1.1 100 Continue\r\n\r\n")
            else:
                break
        if not self.closed:
            self._watch()

    def _begin(self, request: Request) -> None:
        loop = self._reactor.loop
        if loop is None:
            self._reply(request, _result_of(self._answer(request)))
            return
        self._task = loop.create_task(self._answer(request))
        self._task.add_done_callback(lambda task: self._end(request, task))

    def _end(self, request: Request, task: asyncio.Task[Response]) -> None:
        self._task = None
        if self.closed or task.cancelled():
            return
        try:
            self._reply(request, task.result())
            self._advance()
        except OSError:
            self.close()

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._handle(request)
        except Exception:
            log_failure(f"{request.method} {request.path}")
            return json_response({"error": "internal error"}, 500)

    def _reply(self, request: Request, response: Response) -> None:
        self._closing = not request.keep_alive
        self._send(response.encode(close=self._closing))

    def _send(self, data: bytes) -> None:
        self._unsent = memoryview(data)
        self._flush()

    def _flush(self) -> None:
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            return
        if self._closing and not self._unsent:
            self.close()

    def _refuse(self, error: BadRequest) -> None:
        """Answer and end, but go on reading, and drop what comes: closing on unread bytes would reset the connection,
        and the client would lose the answer. It is closed when the client has closed it, or sends too much."""
        self._dropped = 0
        self._send(json_response({"error": str(error)}, error.status).encode(close=True))
        self._sock.shutdown(socket.SHUT_WR)


def _result_of(answering: Coroutine[Any, Any, Response]) -> Response:
    """What a coroutine that never waits returns."""
    try:
        answering.send(None)
    except StopIteration as done:
        response: Response = done.value
        return response
    answering.close()
    raise RuntimeError("something waited in an env that has no async method")
