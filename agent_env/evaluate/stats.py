"""The statistics of an evaluation: means with intervals that respect that a task's episodes are alike.

Intervals are percentile bootstraps that draw *tasks*, each with all its episodes: drawing episodes would take eight
plays of one day for eight days. They are seeded, so that a report is the same each time it is made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeVar

__all__ = ["Estimate", "estimate", "paired_difference", "pass_at_k"]

_Task = TypeVar("_Task")

RESAMPLES = 2000
_TAIL = 0.025


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % interval. With one task, or none, the interval is the mean itself, or not a number."""

    mean: float
    low: float
    high: float
    tasks: int
    episodes: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def estimate(rewards: Sequence[Sequence[float]]) -> Estimate:
    """The mean over episodes, given task by task."""
    tasks = [(sum(task), len(task)) for task in rewards if task]
    episodes = sum(count for _, count in tasks)
    if not tasks:
        return Estimate(math.nan, math.nan, math.nan, 0, 0)
    draw = random.Random(0)
    means = []
    for _ in range(RESAMPLES):
        chosen = draw.choices(tasks, k=len(tasks))
        means.append(sum(total for total, _ in chosen) / sum(count for _, count in chosen))
    # fsum, so that the mean of equal rewards is that reward.
    mean = math.fsum(reward for task in rewards for reward in task) / episodes
    return Estimate(mean, *_interval(means), len(tasks), episodes)


def paired_difference(a: Mapping[_Task, Sequence[float]], b: Mapping[_Task, Sequence[float]]) -> Estimate:
    """The mean over the tasks that both have of (b's mean reward - a's mean reward), by task."""
    differences = [fmean(b[task]) - fmean(a[task]) for task in a if task in b and a[task] and b[task]]
    return estimate([[difference] for difference in differences])


def pass_at_k(rewards: Sequence[Sequence[float]], k: int) -> float | None:
    """The chance that at least one of k episodes of a task is a 1, without bias, averaged over the tasks.

    None where rewards aren't all 0 or 1, or where a task has fewer than k episodes.
    """
    if not rewards or any(len(task) < k or any(reward not in (0.0, 1.0) for reward in task) for task in rewards):
        return None
    return fmean(1 - math.comb(len(task) - int(sum(task)), k) / math.comb(len(task), k) for task in rewards)


def _interval(values: list[float]) -> tuple[float, float]:
    values.sort()
    return values[int(_TAIL * len(values))], values[min(len(values) - 1, int((1 - _TAIL) * len(values)))]
