"""Numbers that a policy is trained on: what counts as a score, how rows make one, how scores make the reward.

Nothing here turns a fault into a number: what isn't a finite number is refused with what came instead.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

__all__ = ["Reward", "aggregate", "as_score", "mean", "reward_named", "reward_of"]

Reward = str | Callable[[Mapping[str, float]], float] | None
"""How the scores of a task, by step id, make its reward: a step id, a function, or None for the only score there is."""


def mean(scores: Mapping[str, float]) -> float:
    """The mean of a task's scores."""
    return fmean(scores.values())


def reward_named(name: str | None) -> Reward:
    """The reward that a command line's `--reward` names: `mean` is the mean of all scores, anything else a step id."""
    return mean if name == "mean" else name


def as_score(value: Any) -> float:
    """A score as a float: int, float, bool (0 or 1), or a scalar of numpy's or torch's kind.

    Raises ValueError, naming what came, for everything else: NaN, infinities, text, None, containers, awaitables.
    """
    if type(value) not in (float, int, bool):
        value = _scalar(value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError("an integer too large for a float is no score") from None
    if not math.isfinite(number):
        raise ValueError(f"{number} is no score: a score is finite")
    return number


def _scalar(value: Any) -> float:
    """What numpy's scalars, torch's 0-d tensors, Decimals and Fractions hold, without knowing any of them."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
        raise ValueError("a coroutine is no score: the function must not be async")
    if value is None or isinstance(value, str | bytes | bytearray | Mapping):
        raise ValueError(f"{_shown(value)} is no score")
    try:
        len(value)
    except TypeError:
        pass  # a scalar
    else:
        raise ValueError(f"{_shown(value)} is no score")
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise ValueError(f"{_shown(value)} is no score")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{_shown(value)} is no score: {error}") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} ({type(value).__name__})"


def aggregate(rows: Sequence[Mapping[str, Any]], aggregator: str) -> float:
    """The score that a verifier's rows make, as the public framework's verifier steps have it:

    - `all_pass`, `any_pass`: whether all, or any, have `result` true (nothing else counts as true).
    - `weighted_average`: of `score` (1 or 0 by `result` where there is none) by `weight` (1 where there is none). A
      negative weight takes away for what is *not* achieved; the whole is clamped to 0..1.
    - No rows, and no positive weight, make 0.

    Raises ValueError for a score or weight that is no finite number.
    """
    if not rows:
        return 0.0
    if aggregator == "all_pass":
        return float(all(row.get("result") is True for row in rows))
    if aggregator == "any_pass":
        return float(any(row.get("result") is True for row in rows))
    if aggregator != "weighted_average":
        raise ValueError(f"there is no score_aggregator {aggregator!r}")
    achieved = possible = missed = 0.0
    for place, row in enumerate(rows):
        score = _number(row, place, "score", 1.0 if row.get("result") else 0.0)
        weight = _number(row, place, "weight", 1.0)
        if weight > 0:
            achieved += score * weight
            possible += weight
        elif weight < 0:
            missed += (1.0 - score) * -weight
    if possible == 0:
        return 0.0
    if not math.isfinite(achieved - missed) or math.isinf(possible):
        raise ValueError("the rows' scores and weights are too large: their sum is no score")
    return min(1.0, max(0.0, (achieved - missed) / possible))  # infinite where one weight is tiny beside the others


def _number(row: Mapping[str, Any], place: int, key: str, default: float) -> float:
    try:
        return as_score(row.get(key, default))
    except ValueError as error:
        raise ValueError(f"row {place} has a {key} that can't be used: {error}") from None


def reward_of(scores: Mapping[str, float], reward: Reward) -> float:
    """The reward that scores make. Raises ValueError, which names the scores, where they make none; a function's own
    error goes through."""
    names = ", ".join(scores) or "none"
    if reward is None:
        if len(scores) != 1:
            raise ValueError(f"the task has {len(scores)} scores ({names}), so reward= must name one or combine them")
        return as_score(next(iter(scores.values())))
    if isinstance(reward, str):
        if reward not in scores:
            raise ValueError(f"reward= names {reward!r}, and the task's scores are: {names}")
        return as_score(scores[reward])
    return as_score(reward(dict(scores)))
