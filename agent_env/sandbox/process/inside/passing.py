"""Descriptors that travel over unix sockets, and the sockets of a network namespace that travel so.

A TCP socket belongs for ever to the network namespace that it was made in. A sandbox that has only a loopback of its
own makes a few *unconnected* ones before any env code runs and passes them out; the server connects them "in there"
itself. So nothing of an env listens on the host, and nothing runs in the sandbox to relay.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable

__all__ = ["MAX_MESSAGE", "listening", "loopback_up", "receive", "send", "unconnected"]

MAX_MESSAGE = 128 << 10
"""Bytes of one message on a control socket."""
_MAX_FDS = 16
_SIOCSIFFLAGS, _UP_RUNNING = 0x8914, 0x1 | 0x40
_TCP = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC


def send(sock: socket.socket, message: bytes, fds: Iterable[int] = ()) -> None:
    extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
    sock.sendmsg([message], extra if extra[0][2] else [])


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it, close-on-exec; b"" at the end.

    Not `socket.recv_fds`, which takes flags and ignores them: an exec'd server would inherit what was passed.
    """
    fds = array.array("i")
    message, extra, _, _ = sock.recvmsg(MAX_MESSAGE, socket.CMSG_LEN(_MAX_FDS * fds.itemsize), socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return message, list(fds)


def loopback_up() -> None:
    """In a new network namespace `lo` is down, and nothing that is bound can be reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_RUNNING))


def unconnected(count: int) -> list[socket.socket]:
    return [socket.socket(socket.AF_INET, _TCP) for _ in range(count)]


def listening(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, _TCP)
    sock.bind(("127.0.0.1", port))
    sock.listen(64)
    return sock
