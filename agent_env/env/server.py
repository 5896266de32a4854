"""Serves an env over whatever its host gives it: sockets passed in, a socket to dial, or a TCP port.

`serve` reads from the environment which it is, so one server.py runs everywhere:

`AGENTENV_ACCEPT_FD=N`
    N is an inherited AF_UNIX SOCK_SEQPACKET socket. Once ready the env sends the message b"ready" on it. Every message
    that comes carries connected stream sockets (SCM_RIGHTS, with at least one byte of data), each a connection to
    serve HTTP on. Its end means that the host is gone: the env exits at once.
`AGENTENV_DIAL=PATH`
    PATH is a unix stream socket where the host listens. Once ready the env connects and sends b"control\\n". For every
    byte b"C" that comes on that connection the env opens another one, sends b"http\\n" and serves HTTP on it. The end
    of the control connection means that the host is gone: the env exits at once.
neither
    TCP on `MCP_HOST` (0.0.0.0), `MCP_PORT` (18765).

`ENVIRONMENT_NAME` overrides the env's name on its card. What tools print goes to standard output, which the host logs.
"""

from __future__ import annotations

import array
import asyncio
import gc
import io
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable

from agent_env.env.app import App
from agent_env.env.base import Env
from agent_env.env.http1 import MAX_HEAD, BadRequest, Request, RequestParser, Response, json_response
from agent_env.env.service import Service, log_failure

__all__ = ["Connection", "serve"]

MAX_PASSED = 64  # sockets in one message; the kernel's own limit is 253
LINGER = 1.0  # seconds that a refused client has to read why, before the connection is closed under it


def serve(env_class: type[Env]) -> None:
    """Make one instance and serve it until the host is gone, or a signal ends it; call it under `if __name__ == ...`.

    The instance is made before the event loop runs. Raises TypeError if a tool can't be described in JSON, OSError if
    the socket can't be had.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what a tool prints is in the log even if the env is killed
    gc.freeze()  # after a fork, a full collection would otherwise copy every page that is shared with the parent
    app = App(Service(env_class(), os.environ.get("ENVIRONMENT_NAME", "")))
    loop = asyncio.new_event_loop()  # without asyncio.run: its care for tasks and SIGINT costs a fork 0.3 MiB
    if accept_fd := os.environ.get("AGENTENV_ACCEPT_FD"):
        _serve_passed(loop, app, socket.socket(fileno=int(accept_fd)))
    else:
        for number in (signal.SIGINT, signal.SIGTERM):  # as process 1 of a container it would otherwise ignore them
            loop.add_signal_handler(number, os._exit, 0)
        if path := os.environ.get("AGENTENV_DIAL"):
            _serve_dialled(loop, app, path)
        else:
            _serve_tcp(loop, app, os.environ.get("MCP_HOST", "0.0.0.0"), int(os.environ.get("MCP_PORT", "18765")))
    loop.run_forever()


def _serve_passed(loop: asyncio.AbstractEventLoop, app: App, channel: socket.socket) -> None:
    channel.setblocking(False)
    channel.set_inheritable(False)
    connections = _Adopted(loop, app)

    def readable() -> None:
        fds = array.array("i")
        try:
            # recvmsg, since socket.recv_fds ignores its flags in 3.11 and would leave the sockets inheritable.
            data, extra, _, _ = channel.recvmsg(1024, socket.CMSG_SPACE(MAX_PASSED * 4), socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            os._exit(0)
        for level, kind, payload in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data and not fds:
            os._exit(0)
        for fd in fds:
            connections.adopt(fd)

    loop.add_reader(channel, readable)
    channel.send(b"ready")


def _serve_dialled(loop: asyncio.AbstractEventLoop, app: App, path: str) -> None:
    connections = _Adopted(loop, app)

    def dial(greeting: bytes) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
            sock.sendall(greeting)
        except BaseException:
            sock.close()
            raise
        return sock

    control = dial(b"control\n")
    control.setblocking(False)

    def readable() -> None:
        try:
            asked = control.recv(1024)
            for _ in range(asked.count(b"C")):
                connections.adopt(dial(b"http\n").detach())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            os._exit(0)
        if not asked:
            os._exit(0)

    loop.add_reader(control, readable)


def _serve_tcp(loop: asyncio.AbstractEventLoop, app: App, host: str, port: int) -> None:
    server = loop.run_until_complete(loop.create_server(lambda: Connection(app.handle), host, port))
    print(f"serving {app.name} on {host}:{server.sockets[0].getsockname()[1]}", file=sys.stderr)


class _Adopted:
    """Serves sockets that were connected elsewhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: App) -> None:
        self._loop = loop
        self._app = app
        self._starting: set[asyncio.Task[None]] = set()  # a task that nothing refers to may be collected

    def adopt(self, fd: int) -> None:
        """Takes the descriptor over. One that is no stream socket, or whose other end is gone, is closed."""
        try:
            sock = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)
            return
        sock.setblocking(False)
        task = self._loop.create_task(self._start(sock))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _start(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: Connection(self._app.handle), sock)
        except (OSError, ValueError):
            sock.close()


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection: requests are answered one after the other; its end cancels the one in progress."""

    def __init__(self, handle: Callable[[Request], Awaitable[Response]]) -> None:
        self._handle = handle
        self._parser = RequestParser()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = True
        self._refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            self._parser.feed(data)
            self._advance()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._advance()

    def _advance(self) -> None:
        """Begin the next request, if there is one and it's its turn."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._refused:
            return
        if self._task is not None or not self._writable:
            if self._parser.buffered > MAX_HEAD:  # a client that sends ahead waits in its own socket
                transport.pause_reading()
            return
        transport.resume_reading()
        try:
            request = self._parser.next()
        except BadRequest as error:
            self._refuse(transport, error)
            return
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._answer(request))
        elif self._parser.awaits_continue():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _answer(self, request: Request) -> None:
        try:
            response = await self._handle(request)
        except Exception:
            log_failure(f"{request.method} {request.path}")
            response = json_response({"error": "internal error"}, 500)
        self._task = None
        if self._transport is None:
            return
        self._transport.write(response.encode(close=not request.keep_alive))
        if request.keep_alive:
            self._advance()
        else:
            self._transport.close()

    def _refuse(self, transport: asyncio.Transport, error: BadRequest) -> None:
        """Answer and close. What still comes is read and dropped for a while: closing on unread bytes would reset the
        connection, and the client would lose the answer."""
        self._refused = True
        transport.write(json_response({"error": str(error)}, error.status).encode(close=True))
        if transport.can_write_eof():
            transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER, transport.close)
