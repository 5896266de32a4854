"""Serves an env over whatever its host gives it: sockets passed in, a socket to dial, or a TCP port.

`serve` reads from the environment which it is, so one server.py runs everywhere:

`AGENTENV_ACCEPT_FD=N`
    N is an inherited AF_UNIX SOCK_SEQPACKET socket. Once ready the env sends the message b"ready" on it; or b"ready\\n"
    and what a client would ask first, as JSON: {"card": its card, "session": the id of an MCP session that is open,
    "version": of the protocol}. Every message that comes carries connected stream sockets (SCM_RIGHTS, with at least
    one byte of data), each a connection to serve HTTP on. Its end means that the host is gone: the env exits at once.
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
import gc
import io
import os
import signal
import socket
import sys
from typing import NoReturn

from agent_env.env.app import App
from agent_env.env.base import Env
from agent_env.env.connection import Connection
from agent_env.env.reactor import READ, Reactor
from agent_env.env.service import Service

__all__ = ["serve"]

MAX_PASSED = 64  # sockets in one message; the kernel's own limit is 253
MAX_INTRODUCTION = 64 << 10  # bytes, of the 128 KiB that the host reads; what is longer it asks for


def serve(env_class: type[Env]) -> None:
    """Make one instance and serve it until the host is gone, or a signal ends it; call it under `if __name__ == ...`.

    An env with an `async` method runs on an asyncio event loop; the instance is made before it runs. Raises TypeError
    if a tool can't be described in JSON, OSError if the socket can't be had.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what a tool prints is in the log even if the env is killed
    gc.freeze()  # after a fork, a full collection would otherwise copy every page that is shared with the parent
    for number in (signal.SIGINT, signal.SIGTERM):  # as process 1 of a container it would otherwise ignore them
        signal.signal(number, _exit)
    service = Service(env_class(), os.environ.get("ENVIRONMENT_NAME", ""))
    reactor = Reactor()
    if accept_fd := os.environ.get("AGENTENV_ACCEPT_FD"):
        _serve_passed(reactor, App(service), socket.socket(fileno=int(accept_fd)))
    elif path := os.environ.get("AGENTENV_DIAL"):
        _serve_dialled(reactor, App(service), path)
    else:
        _serve_tcp(reactor, App(service), os.environ.get("MCP_HOST", "0.0.0.0"), os.environ.get("MCP_PORT", "18765"))
    if service.waits:
        import asyncio  # which an env without async methods is spared: 0.7 MiB of each of its episodes

        loop = asyncio.new_event_loop()
        reactor.attach(loop)
        loop.run_forever()
    else:
        reactor.run()


def _exit(*_: object) -> NoReturn:
    os._exit(0)


def _serve_passed(reactor: Reactor, app: App, channel: socket.socket) -> None:
    channel.setblocking(False)
    channel.set_inheritable(False)

    def readable(events: int) -> None:
        fds = array.array("i")
        try:
            # recvmsg, since socket.recv_fds ignores its flags in 3.11 and would leave the sockets inheritable.
            data, extra, _, _ = channel.recvmsg(1024, socket.CMSG_SPACE(MAX_PASSED * 4), socket.MSG_CMSG_CLOEXEC)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            _exit()
        for level, kind, payload in extra:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data and not fds:
            _exit()
        for fd in fds:
            try:
                _connect(reactor, app, socket.socket(fileno=fd))
            except OSError:  # no socket
                os.close(fd)

    reactor.watch(channel.fileno(), READ, readable)
    introduction = app.introduction()
    channel.send(b"ready\n" + introduction if len(introduction) <= MAX_INTRODUCTION else b"ready")


def _connect(reactor: Reactor, app: App, sock: socket.socket) -> None:
    """Never raises; the socket is the connection's from now on."""
    try:
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        Connection(reactor, sock, app.handle)
    except OSError:  # the other end is gone already
        sock.close()


def _serve_dialled(reactor: Reactor, app: App, path: str) -> None:
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

    def readable(events: int) -> None:
        try:
            asked = control.recv(1024)
            for _ in range(asked.count(b"C")):
                _connect(reactor, app, dial(b"http\n"))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            _exit()
        if not asked:
            _exit()

    reactor.watch(control.fileno(), READ, readable)


def _serve_tcp(reactor: Reactor, app: App, host: str, port: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, int(port)), family=family, backlog=128)
    listener.setblocking(False)

    def readable(events: int) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:  # its client is gone already, or there are too many: the others are served on
            return
        _connect(reactor, app, sock)

    reactor.watch(listener.fileno(), READ, readable)
    print(f"serving {app.name} on {host}:{listener.getsockname()[1]}", file=sys.stderr)
