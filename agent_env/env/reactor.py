"""Calls back when descriptors are ready: all that an env needs of an event loop, unless it has `async` methods.

Why not asyncio alone: an env is forked from a warm parent, and every object that it touches costs it a page of memory
and a page fault. asyncio's loop, tasks and transports came to 0.6 MiB and 1.2 ms of CPU time an episode, a seventh and
a fifth of all. An env that does wait runs an asyncio loop, which then watches this one's descriptor (`attach`).
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

__all__ = ["READ", "WRITE", "Reactor"]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class Reactor:
    """One epoll, in one thread."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where coroutines run; None: none of this env's ever waits."""
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever one of READ and WRITE, or an error, comes to pass; replaces an earlier wish."""
        if fd in self._ready:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._ready[fd] = ready

    def forget(self, fd: int) -> None:
        """To be called before the descriptor is closed. Idempotent."""
        if self._ready.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def poll(self, timeout: float = 0) -> None:
        """Wait up to so many seconds (-1: for ever), and call back for what is ready."""
        for fd, events in self._epoll.poll(timeout):
            ready = self._ready.get(fd)
            if ready is not None:  # else it was forgotten by an earlier one of these
                ready(events)

    def run(self) -> None:
        """Never returns."""
        while True:
            self.poll(-1)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Instead of `run`: be a part of an asyncio loop, where coroutines run from now on."""
        self.loop = loop
        loop.add_reader(self._epoll.fileno(), self.poll)

    def close(self) -> None:
        """Watch nothing any more. Idempotent."""
        if self.loop is not None and not self._epoll.closed:
            self.loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
