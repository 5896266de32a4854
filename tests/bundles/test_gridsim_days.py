"""The days that are shipped: what they are, and what simple rules score on them."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import tomllib
from typing import Any

import pytest

from tests.bundles.gridsim import BUNDLE, baselines, build, rules


def tasks(split: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (BUNDLE / "tasks" / f"{split}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", build.SHA256)
def test_the_files_are_the_ones_that_were_drawn(name: str) -> None:
    assert hashlib.sha256((BUNDLE / name).read_bytes()).hexdigest() == build.SHA256[name]


@pytest.mark.parametrize(("split", "count"), [("train", 2000), ("eval", 200)])
def test_each_line_is_the_task_of_its_day(split: str, count: int) -> None:
    found = tasks(split)
    names = [f"{split}-{index:04d}" for index in range(count)]
    assert [task["name"] for task in found] == names
    assert tomllib.loads((BUNDLE / "evals" / f"{split}.toml").read_text()) == {"tasks": names}
    for task, day in zip(found, baselines.days(split), strict=True):
        tags = task["tags"]
        assert task == build.task(build.Drawn(task["name"], int(tags["month"]), tags["hub"], day))


def test_no_day_is_in_both_splits_or_twice_in_one() -> None:
    days = [json.dumps(day) for split in ("train", "eval") for day in baselines.days(split)]
    assert len(set(days)) == len(days)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_every_day_pays_and_is_not_solved_by_the_greedy_rule(split: str) -> None:
    for day in baselines.days(split):
        best, _ = rules.optimum(day)
        assert best >= 2 * 10_000 * day["power"]
        assert rules.profit(day, baselines.greedy(day)) < best


def mean_scores(name: str, split: str = "eval") -> dict[int, float]:
    """Mean score by duration; 0: all."""
    scores: dict[int, list[float]] = {0: [], 1: [], 2: [], 4: []}
    for day in baselines.days(split):
        score = baselines.grade(day, baselines.BASELINES[name](day))
        scores[0].append(score)
        scores[day["duration"]].append(score)
    return {duration: statistics.fmean(listed) for duration, listed in scores.items()}


def test_idling_scores_exactly_a_fifth_and_the_optimum_exactly_one() -> None:
    for day in baselines.days("eval"):
        assert baselines.grade(day, baselines.idle(day)) == 0.2
        assert baselines.grade(day, rules.optimum(day)[1]) == 1.0


def test_the_greedy_rule_scores_what_the_design_says() -> None:
    means = mean_scores("greedy")
    assert means == pytest.approx({0: 0.763, 1: 0.786, 2: 0.804, 4: 0.699}, abs=0.001)
    assert mean_scores("greedy", "train")[0] == pytest.approx(0.766, abs=0.001)


def test_the_readme_says_what_the_rules_score() -> None:
    table = (BUNDLE / "README.md").read_text().partition("| eval (200 days)")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| ([a-z ]+) \| ([\d. |]+?) \| [\d.]+ % \|$", table, re.MULTILINE))
    assert rows == {
        name: " | ".join(f"{mean:.3f}" for mean in mean_scores(name).values()) for name in baselines.BASELINES
    }


def test_the_prompt_holds_the_battery_and_every_price() -> None:
    day = baselines.days("eval")[2]
    text = build.prompt(day)
    for line in ("power: 10 MW (", "duration: 2 h (at most 20 MWh", "efficiency: 85%", "wear: $5.00 per MWh"):
        assert f"\n{line}" in text
    prices = re.findall(r"^(\d+): (-?\d+\.\d\d)$", text, re.MULTILINE)
    assert [(int(hour), round(float(price) * 100)) for hour, price in prices] == list(enumerate(day["prices"]))


def test_the_prompts_example_is_no_answer_to_any_day() -> None:
    found = re.search(r"submit_schedule\(schedule=(\[.*?\])\)", build.SYSTEM_PROMPT)
    assert found is not None
    example = json.loads(found[1])
    assert rules.profit({"power": 120, "duration": 2, "efficiency": 90, "wear": 0, "prices": [0] * 24}, example) == 0
    for split in ("train", "eval"):
        assert all(baselines.grade(day, example) == 0 for day in baselines.days(split))
    scaled = [
        baselines.grade(day, [move // 120 * day["power"] for move in example])
        for day in baselines.days("eval")
        if day["duration"] > 1
    ]
    assert statistics.fmean(scaled) < 0.2
