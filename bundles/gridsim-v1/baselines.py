"""Rules that need no learning, and what they score: `python baselines.py` prints the README's table."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER / "envs" / "gridsim"))

from gridsim import HOURS, Day, RuleBroken, buy_cost, optimum, profit, sell_income  # noqa: E402

Plan = Callable[[Day], list[int]]

_score = runpy.run_path(str(FOLDER / "artifacts" / "check_schedule" / "verify.py"))["score"]


def idle(day: Day) -> list[int]:
    """Do nothing."""
    return [0] * HOURS


def clock(day: Day) -> list[int]:
    """By the time of day alone: buy from 01:00 on, sell up to 21:00."""
    return _moves(day, range(1, 1 + day["duration"]), range(21 - day["duration"], 21))


def careless(day: Day) -> list[int]:
    """Buy in the cheapest hours and sell in the dearest, whatever their order: it may break a rule."""
    size = day["duration"]
    return _moves(day, _cheapest(day, range(HOURS))[:size], _dearest(day, range(HOURS))[:size])


def threshold(day: Day) -> list[int]:
    """Buy under the day's median price, less half of what a cycle costs, and sell above it, plus that half."""
    middle = sorted(day["prices"])[HOURS // 2]
    margin = abs(middle) * (100 / day["efficiency"] - 1) / 2 + day["wear"] / 2
    power = day["power"]
    wanted = [power if p < middle - margin else -power if p > middle + margin else 0 for p in day["prices"]]
    return _possible(day, wanted)


def greedy(day: Day) -> list[int]:
    """Buy in the `duration` cheapest hours, sell in the dearest ones after them all; idle if that doesn't pay."""
    size = day["duration"]
    buys = _cheapest(day, range(HOURS))[:size]
    sells = _dearest(day, range(max(buys) + 1, HOURS))[:size]
    plan = _moves(day, buys, sells)
    return plan if profit(day, plan) > 0 else idle(day)


def one_cycle(day: Day) -> list[int]:
    """The best single cycle: for every hour that may part it, the cheapest ones before and the dearest ones after."""
    size, best, plan = day["duration"], 0, idle(day)
    for hour in range(1, HOURS):
        buys, sells = _cheapest(day, range(hour))[:size], _dearest(day, range(hour, HOURS))[:size]
        tried = _possible(day, _moves(day, buys, sells))
        made = profit(day, tried)
        if made > best:
            best, plan = made, tried
    return plan


def best(day: Day) -> list[int]:
    """A schedule that makes the optimum."""
    return optimum(day)[1]


BASELINES: dict[str, Plan] = {
    "idle": idle,
    "threshold": threshold,
    "clock": clock,
    "careless": careless,
    "greedy": greedy,
    "one cycle": one_cycle,
    "optimum": best,
}


def grade(day: Day, schedule: list[int]) -> float:
    """The verifier's score."""
    try:
        made = profit(day, schedule)
    except RuleBroken:
        return 0.0
    return float(_score(made, optimum(day)[0]))


def days(split: str) -> list[Day]:
    """The days of tasks/SPLIT.jsonl, in order."""
    with open(FOLDER / "tasks" / f"{split}.jsonl", encoding="utf-8") as lines:
        return [json.loads(line)["steps"][1]["directives"][0]["args"]["day"] for line in lines]


def main() -> None:
    for split in ("eval", "train"):
        found = days(split)
        print(
            f"| {split} ({len(found)} days) | all | 1 h | 2 h | 4 h | scored 0 |\n| --- | --- | --- | --- | --- | --- |"
        )
        for name, plan in BASELINES.items():
            scores = [(day["duration"], grade(day, plan(day))) for day in found]
            means = [_mean(score for _, score in scores)]
            means += [_mean(score for size, score in scores if size == duration) for duration in (1, 2, 4)]
            zeros = _mean(score == 0 for _, score in scores)
            print(f"| {name} | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | {100 * zeros:.1f} % |")
        print()


def _moves(day: Day, buys: Iterable[int], sells: Iterable[int]) -> list[int]:
    """Full power in these hours."""
    plan = [0] * HOURS
    for hour in buys:
        plan[hour] = day["power"]
    for hour in sells:
        plan[hour] = -day["power"]
    return plan


def _possible(day: Day, wanted: list[int]) -> list[int]:
    """`wanted`, each move cut to what fits or is stored."""
    stored, plan = 0, []
    for move in wanted:
        move = max(-stored, min(move, day["power"] * day["duration"] - stored))
        stored += move
        plan.append(move)
    return plan


def _cheapest(day: Day, hours: Iterable[int]) -> list[int]:
    return sorted(hours, key=lambda hour: (buy_cost(day, hour), hour))


def _dearest(day: Day, hours: Iterable[int]) -> list[int]:
    return sorted(hours, key=lambda hour: (-sell_income(day, hour), hour))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)


if __name__ == "__main__":
    main()
