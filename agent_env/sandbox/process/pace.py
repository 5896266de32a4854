"""Few starts at once: a crowd of envs that come up must not slow the calls of those that run.

Starting is CPU time and nothing else, so as many at once as there are cores get all of them up just as soon, and leave
the event loop and the running envs their share: at 32 sessions on two cores, a tool call takes 3 ms instead of 10.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Pace"]

HOLD_SECONDS = 0.1
"""After so long a turn is over, though what began in it goes on: it waits for something, or CPU time is scarce."""


class Pace:
    """Turns, first come first served."""

    def __init__(self, at_once: int | None = None) -> None:
        """at_once: twice the cores that this process may use, if not given: each waits for another at times."""
        self._slots = asyncio.Semaphore(at_once or 2 * len(os.sched_getaffinity(0)))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn; it lasts until the block ends, or HOLD_SECONDS."""
        await self._slots.acquire()
        over = False

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                self._slots.release()

        timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, end)
        try:
            yield
        finally:
            timer.cancel()
            end()
