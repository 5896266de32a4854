"""Who gets room: a hard cap on live envs, and one queue, first come first served.

A slot is taken before an env is deployed and given back when its teardown is through, so the number of envs on the
host never exceeds the cap. A slot that comes free goes to the oldest waiter; nobody overtakes the queue. A client that
doesn't queue still waits for a slot whose env is being torn down: one that plays episode after episode, each on a new
connection, would else be refused for its own last one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

__all__ = ["Admission", "AtCapacity", "Closing", "Slot"]

LEAVING_SECONDS = 15.0
"""How long a client that doesn't queue waits for a teardown under way."""


class AtCapacity(Exception):
    """No slot came free in time. `active` and `limit` count slots; `waited` is in seconds."""

    def __init__(self, active: int, limit: int, waited: float) -> None:
        self.active = active
        self.limit = limit
        self.waited = waited
        text = f"Server at capacity: {active}/{limit} sessions active"
        super().__init__(f"{text}, and no room within {waited:g} s" if waited else f"{text}. Try again later.")


class Closing(Exception):
    """The server is going away: open a session on another, or on this one once it is back."""


class Slot:
    """Room for one env. Whoever holds it releases it once."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._held = True
        self._leaving = False

    def leave(self) -> None:
        """Say that the env is being torn down, and `release` follows."""
        if self._held and not self._leaving:
            self._leaving = True
            self._admission._leaving += 1

    def release(self) -> None:
        """Give the room to the oldest waiter, or back. Later calls do nothing."""
        if self._held:
            self._held = False
            self._admission._leaving -= self._leaving
            self._admission._release()


class Admission:
    """Slots and their queue. Every operation takes constant time, however many wait."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"max_concurrent_envs={limit}: at least 1 env must be able to run")
        self.limit = limit
        self._live = 0
        self._leaving = 0
        self._waiters: OrderedDict[asyncio.Future[Slot | None], None] = OrderedDict()
        self._closing = False

    @property
    def live(self) -> int:
        """Slots that are held."""
        return self._live

    @property
    def waiting(self) -> int:
        """Sessions in the queue."""
        return len(self._waiters)

    def acquire_now(self) -> Slot:
        """A slot at once. Raises AtCapacity when all are held, as they are while anybody waits; Closing at shutdown."""
        if self._closing:
            raise Closing("the server is going away")
        if self._live >= self.limit:
            raise AtCapacity(self._live, self.limit, 0.0)
        self._live += 1
        return Slot(self)

    async def acquire(self, wait: float) -> Slot:
        """A slot, after at most `wait` seconds in the queue. Raises AtCapacity, and Closing at shutdown.

        With `wait=0` it still awaits a slot that is being left, if nobody who came before will take it.

        A waiter that is cancelled leaves the queue at once, and passes a slot on that it had just been given.
        """
        try:
            return self.acquire_now()
        except AtCapacity:
            if wait <= 0 and self._leaving <= len(self._waiters):
                raise
        granted: asyncio.Future[Slot | None] = asyncio.get_running_loop().create_future()
        self._waiters[granted] = None
        try:
            await asyncio.wait((granted,), timeout=wait if wait > 0 else LEAVING_SECONDS)
        except asyncio.CancelledError:
            if granted.done() and (slot := granted.result()) is not None:
                slot.release()
            raise
        finally:
            self._waiters.pop(granted, None)
        if not granted.done():
            raise AtCapacity(self._live, self.limit, wait)
        slot = granted.result()
        if slot is None:
            raise Closing("the server is going away")
        return slot

    def close(self) -> None:
        """Admit nobody any more: every waiter is told Closing. Held slots are still released by their holders."""
        self._closing = True
        while self._waiters:
            granted, _ = self._waiters.popitem(last=False)
            granted.set_result(None)

    def _release(self) -> None:
        if self._waiters:
            granted, _ = self._waiters.popitem(last=False)
            granted.set_result(Slot(self))
        else:
            self._live -= 1
