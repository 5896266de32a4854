"""Waiting on descriptors without blocking the event loop, safely under cancellation."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["finish", "is_readable", "readable", "receive_text", "send_fds"]

T = TypeVar("T")


def is_readable(fd: int) -> bool:
    poll = select.poll()  # not select(): a server with thousands of envs has descriptors above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


async def readable(fd: int) -> None:
    """Return once fd can be read (or has ended; a pidfd: once its process has). One waiter a descriptor at a time."""
    if is_readable(fd):
        return
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def send_fds(sock: socket.socket, message: bytes, fds: list[int]) -> None:
    """One message, when there is room for it. Raises OSError (BrokenPipeError) if the other end is closed."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            socket.send_fds(sock, [message], fds)
            return
        except BlockingIOError:
            room = asyncio.Event()
            loop.add_writer(sock, room.set)
            try:
                await room.wait()
            finally:
                loop.remove_writer(sock)


async def receive_text(sock: socket.socket, limit: int) -> bytes:
    """One message of at most `limit` bytes; descriptors sent along are dropped by the kernel. b"" at the end."""
    await readable(sock.fileno())
    try:
        return sock.recv(limit)
    except ConnectionError:
        return b""


async def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a clean-up to its end, also if the caller is cancelled (again) meanwhile; then the cancellation goes on."""
    task = asyncio.ensure_future(coroutine)
    cancelled = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except BaseException:
            break
    if cancelled is not None:
        task.exception()  # seen
        raise cancelled
    return task.result()
