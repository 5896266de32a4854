"""A shelf of things that take long to make: some are kept ready, each is handed out once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

__all__ = ["Fresh", "Shelf"]

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0


class Fresh(Protocol):
    """What a shelf holds: it can end on its own, and be ended."""

    async def wait(self) -> str:
        """Return when it has ended, with why."""

    async def kill(self) -> None: ...


T = TypeVar("T", bound=Fresh)


class Shelf(Generic[T]):
    """Keeps up to `target` things ready. Runs on one event loop; owns what it holds until `take` hands it out.

    A thing that can't be made, or that ends while it waits, is told by the log and followed by a pause that doubles
    from 0.5 to 60 seconds, so a thing that always crashes can't keep the machine busy. Handing one out, or
    `recovered()`, ends the pauses.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Awaitable[T]],
        *,
        target: int,
        starts: asyncio.Semaphore,
        room: Callable[[], int] | None = None,
    ) -> None:
        """`make` must be safe to cancel. `starts` bounds how many are made at a time, over several shelves if shared.
        `room` says how many more the host may hold (asked before each; None: any number)."""
        self.name = name
        self.target = target
        self.last_error: str | None = None
        """Why the last one failed; None once one was handed out."""
        self._make = make
        self._starts = starts
        self._room = room
        self._ready: deque[tuple[T, asyncio.Task[None]]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def held(self) -> int:
        """Ready and being made: what the host holds for this shelf."""
        return len(self._ready) + len(self._starting)

    def fill(self) -> None:
        """Begin to make what is missing, in the background. At once; does nothing during a pause."""
        while not self._closed and self._pause is None and self.held < self.target:
            if self._room is not None and self._room() < 1:
                return
            task = asyncio.create_task(self._put_one(), name=f"warm {self.name}")
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)

    def take(self) -> T | None:
        """The one that has waited longest, never handed out before; None if none is ready. Call `fill` afterwards."""
        while self._ready:
            thing, watcher = self._ready.popleft()
            if watcher.done():
                continue  # it ended just now; its watcher has told
            watcher.cancel()
            self.recovered()
            return thing
        return None

    def recovered(self) -> None:
        """One was made elsewhere: what was wrong is over."""
        self._failures = 0
        self.last_error = None
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    async def shrink(self) -> bool:
        """Give one up to make room, and return when it is gone. False if there is none to give."""
        if self._ready:
            thing, watcher = self._ready.pop()
            watcher.cancel()
            await asyncio.shield(self._end(thing))
            return True
        waiting = next(iter(self._starting), None)
        if waiting is None:
            return False
        waiting.cancel()
        await asyncio.wait([waiting])
        return True

    async def close(self) -> None:
        """End all that it holds, in parallel. Nothing is made afterwards. Idempotent."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        starting = list(self._starting)
        for task in starting:
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        while self._ready:
            thing, watcher = self._ready.pop()
            watcher.cancel()
            self._end(thing)
        if self._ending:
            await asyncio.wait(list(self._ending))

    async def _put_one(self) -> None:
        try:
            async with self._starts:
                thing = await self._make()
        except Exception as error:
            self._failed(f"can't keep {self.name} warm: {error}")
            return
        self._starting.discard(asyncio.current_task())
        watcher = asyncio.create_task(self._watch(thing), name=f"watch warm {self.name}")
        self._ready.append((thing, watcher))

    async def _watch(self, thing: T) -> None:
        why = await thing.wait()
        for entry in list(self._ready):
            if entry[0] is thing:
                self._ready.remove(entry)
        self._end(thing)
        self._failed(f"a warm {self.name} ended before it was used: {why}")

    def _failed(self, message: str) -> None:
        self._failures += 1
        self.last_error = message
        if self._closed:
            return
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._failures - 1))
        log.warning("%s (next try in %g s)", message, pause)
        if self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(pause, self._try_again)

    def _try_again(self) -> None:
        self._pause = None
        self.fill()

    def _end(self, thing: T) -> asyncio.Task[None]:
        task = asyncio.create_task(thing.kill(), name=f"end warm {self.name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task
