"""What happened lately, for the live page: a bounded memory of episodes, and of rewards, failures and latencies."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from agent_env.episode.types import Event
from agent_env.monitor.traces import bounded

__all__ = ["Recent"]

SPAN = 600
"""Seconds that are remembered."""
BUCKET = 10
"""Seconds that one point of a curve covers."""
FINISHED = 200
"""Episodes that are remembered after their end."""
EVENTS = 300
"""Events of one episode that are remembered: the first ones, and how it ended."""
TEXT = 4000
"""Characters of a text that are remembered."""
SAMPLES = 256
"""Latencies of one kind that a bucket keeps."""
_ENDING = {"scored", "failed", "closed"}


@dataclass(slots=True)
class _Bucket:
    start: float
    scored: int = 0
    rewards: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    deploys: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)

    def point(self) -> dict[str, Any]:
        return {
            "time": self.start,
            "scored": self.scored,
            "reward": self.rewards / self.scored if self.scored else None,
            "failed": sum(self.failures.values()),
            "deploy": median(self.deploys) if self.deploys else None,
            "call": median(self.calls) if self.calls else None,
        }


class Recent:
    """A listener. Its memory is bounded by the number of live episodes and the constants above."""

    def __init__(self) -> None:
        self._buckets: deque[_Bucket] = deque(maxlen=SPAN // BUCKET)
        self._live: dict[str, list[dict[str, Any]]] = {}
        self._finished: OrderedDict[str, list[dict[str, Any]]] = OrderedDict()

    def __call__(self, event: Event) -> None:
        events = self._live.setdefault(event.episode_id, [])
        if len(events) < EVENTS or event.kind in _ENDING:
            head = {"time": event.time, "kind": event.kind, "task_id": event.task_id}
            events.append({**head, **bounded(event.data, TEXT)})
        self._count(event)
        if event.kind == "closed":
            self._finished[event.episode_id] = self._live.pop(event.episode_id)
            self._finished.move_to_end(event.episode_id)
            while len(self._finished) > FINISHED:
                self._finished.popitem(last=False)

    def events(self, episode_id: str) -> list[dict[str, Any]] | None:
        """What is remembered of an episode, live or finished; None if nothing is."""
        return self._live.get(episode_id) or self._finished.get(episode_id)

    def finished(self) -> Iterator[dict[str, Any]]:
        """The episodes that ended last, newest first."""
        for episode_id, events in reversed(self._finished.items()):
            ends = [event for event in events if event["kind"] in ("scored", "failed")]
            end: dict[str, Any] = ends[-1] if ends else {"kind": "abandoned"}
            yield {
                "episode_id": episode_id,
                "task_id": events[0]["task_id"],
                "end": end.get("reason") or end["kind"],
                "message": end.get("message"),
                "reward": end.get("reward"),
                "seconds": round(events[-1]["time"] - events[0]["time"], 3),
                "time": events[-1]["time"],
            }

    def curves(self) -> list[dict[str, Any]]:
        """A point for each BUCKET seconds of the last SPAN in which something happened, oldest first.

        Seconds are medians, `reward` is the mean of the scored episodes, the others are counts.
        """
        oldest = time.time() - SPAN
        return [bucket.point() for bucket in self._buckets if bucket.start >= oldest]

    def _count(self, event: Event) -> None:
        start = event.time // BUCKET * BUCKET
        if not self._buckets or self._buckets[-1].start < start:
            self._buckets.append(_Bucket(start))
        bucket, data = self._buckets[-1], event.data
        if event.kind == "scored":
            bucket.scored += 1
            bucket.rewards += data["reward"]
        elif event.kind == "failed":
            bucket.failures[str(data["reason"])] += 1
        elif event.kind == "deployed" and len(bucket.deploys) < SAMPLES:
            bucket.deploys.append(data["seconds"])
        elif event.kind == "call" and len(bucket.calls) < SAMPLES:
            bucket.calls.append(data["seconds"])
