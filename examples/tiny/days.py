"""Fresh GridSim days without end, and an expert's conversation about each. None is a day of the train or eval split."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

BUNDLE = Path(__file__).resolve().parents[2] / "bundles" / "gridsim-v1"
sys.path[:0] = [str(BUNDLE), str(BUNDLE / "envs" / "gridsim")]

from baselines import grade, greedy, one_cycle  # noqa: E402
from build import EFFICIENCIES, LEAST_PER_MW, POWERS, WEARS, prompt, synthetic  # noqa: E402
from gridsim import HOURS, Day, optimum, profit  # noqa: E402

SEED = 20_000
"""The splits are drawn from the seeds 11 and 31."""


def fresh_days(stream: int) -> Iterator[Day]:
    """Days drawn as the bundle's are, with each duration equally often. Another stream: other days."""
    rng = np.random.default_rng([SEED, stream])
    while True:
        _, _, prices = synthetic(rng)
        power, duration = int(rng.choice(POWERS)), int(rng.choice((1, 2, 4)))
        efficiency, wear = int(rng.choice(EFFICIENCIES)), int(rng.choice(WEARS))
        day = Day(power=power, duration=duration, efficiency=efficiency, wear=wear, prices=prices)
        best = optimum(day)[0]
        if best >= LEAST_PER_MW * power and profit(day, greedy(day)) < best:
            yield day


def question(day: Day, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row's messages, asking about this day instead."""
    return [*messages[:-1], {"role": "user", "content": prompt(day)}]


def expert(day: Day) -> list[dict[str, Any]]:
    """What the best single cycle would say and hear: the hours first, as a note to itself, then the call."""
    plan = one_cycle(day)
    bought, sold = ([hour for hour, move in enumerate(plan) if move * sign > 0] for sign in (1, -1))
    note = f"Buy in hours {listed(bought)}; sell in hours {listed(sold)}." if bought else "Idle."
    made = profit(day, plan)
    call = {"name": "submit_schedule", "arguments": {"schedule": plan}}
    heard = f"Accepted: it keeps the rules and makes ${made / 10_000:.2f}. There is nothing more to do."
    return [
        {"role": "assistant", "content": note, "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "content": heard},
        {"role": "assistant", "content": "Submitted."},
    ]


def listed(hours: list[int]) -> str:
    return ", ".join(map(str, hours))


def score(day: Day, reply: str) -> float:
    """What the verifier would give the first call in a reply's text; 0 for one that can't be read."""
    _, found, rest = reply.partition("<tool_call>")
    try:
        plan = json.loads(rest.partition("</tool_call>")[0])["arguments"]["schedule"]
    except (ValueError, KeyError, TypeError):
        return 0.0
    whole = isinstance(plan, list) and len(plan) == HOURS and all(type(move) is int for move in plan)
    return grade(day, plan) if found and whole else 0.0


__all__ = ["Day", "expert", "fresh_days", "question", "score"]
