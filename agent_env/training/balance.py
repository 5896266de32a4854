"""Which of several equal servers to try first: the less loaded of two random ones, as their GET /status says.

Asking two and not all keeps the cost constant and the herd apart: rollouts that start together don't all find the same
server empty. What a server said holds for `FRESH` seconds; what this process has sent there since is counted on top.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from agent_env.openenv.client import OpenEnvError, Unreachable
from agent_env.openenv.task_client import TaskApi

__all__ = ["ASK_SECONDS", "FRESH", "Balancer", "balancer"]

FRESH = 1.0
"""Seconds for which an answer of a server holds; so a dead one is asked again, and rejoins, this often."""
ASK_SECONDS = 1.0
"""For one answer: a server that takes longer counts as unreachable until it is asked again."""


@dataclass(slots=True)
class _Load:
    """What is known of one server."""

    asked: float = -FRESH
    """When (time.monotonic)."""
    alive: bool = True
    share: float | None = None
    """Of its capacity, live and waiting; None: it doesn't say (it is no agent_env server, or it refused the token)."""
    capacity: int = 1
    sent: int = 0
    """Sessions that this process has sent there since."""
    asking: asyncio.Task[None] | None = None

    @property
    def now(self) -> float | None:
        return None if self.share is None else self.share + self.sent / self.capacity


class Balancer:
    """Orders servers by their load. One per event loop: `balancer()`."""

    def __init__(self) -> None:
        self._loads: dict[str, _Load] = {}

    async def order(self, urls: Sequence[str], token: str | None) -> list[str]:
        """The servers in the order to try them in; all or, where others live, without those known to be dead.

        The caller tries each at once and queues at the last: so the best comes first if it has room, else last.
        Takes ASK_SECONDS at most; raises nothing.
        """
        mixed = random.sample(urls, len(urls))
        if len(mixed) == 1:
            return mixed
        pair = mixed[:2]
        await asyncio.gather(*(self._ask(url, token) for url in pair))
        alive = [url for url in mixed if self._load(url).alive] or mixed
        loads = {url: load for url in pair if url in alive and (load := self._load(url).now) is not None}
        if not loads:
            return alive
        best = min(loads, key=lambda url: loads[url])
        others = [url for url in alive if url != best]
        self._load(best).sent += 1
        return [best, *others] if loads[best] < 1 else [*others, best]

    def _load(self, url: str) -> _Load:
        return self._loads.setdefault(url, _Load())

    async def _ask(self, url: str, token: str | None) -> None:
        """Know how loaded a server is, unless that is known. Whoever comes while it is being asked waits along."""
        load = self._load(url)
        if load.asking is None and time.monotonic() - load.asked >= FRESH:
            load.asking = asyncio.create_task(_refresh(load, url, token))
        if load.asking is not None:
            await asyncio.shield(load.asking)


async def _refresh(load: _Load, url: str, token: str | None) -> None:
    try:
        async with TaskApi(url, token=token, timeout=ASK_SECONDS) as api:
            said = await api.status()
        load.alive, load.sent = True, 0
        load.share, load.capacity = _share(said)
    except Unreachable:
        load.alive = False
    except OpenEnvError:
        load.alive, load.share = True, None
    finally:
        load.asked, load.asking = time.monotonic(), None


def _share(said: object) -> tuple[float | None, int]:
    """(live + waiting) / capacity, and capacity, as far as they are there. One that can't deploy comes last: its
    failures are quick, so it would look idle."""
    if not isinstance(said, dict):
        return None, 1
    if said.get("problem"):
        return math.inf, 1
    live, waiting, capacity = (said.get(key) for key in ("live", "waiting", "capacity"))
    if not (isinstance(live, int) and isinstance(waiting, int) and isinstance(capacity, int) and capacity > 0):
        return None, 1
    return (live + waiting) / capacity, capacity


_balancers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Balancer] = weakref.WeakKeyDictionary()


def balancer() -> Balancer:
    """The running event loop's."""
    return _balancers.setdefault(asyncio.get_running_loop(), Balancer())
