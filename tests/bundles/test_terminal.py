"""The terminal bundle: its files, and criteria that are worth what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import load_bundle

TERMINAL = Path(__file__).parents[2] / "bundles" / "terminal-v1"
FAMILIES = ("totals", "log", "fix", "tidy", "config", "merge")


def tasks() -> Iterator[dict[str, Any]]:
    for split in ("train", "eval"):
        for line in (TERMINAL / "tasks" / f"{split}.jsonl").open():
            yield json.loads(line)


def test_drawing_again_gives_the_files_that_are_here() -> None:
    command = [sys.executable, "-B", str(TERMINAL / "build.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout


def test_every_task_is_served_and_families_are_even() -> None:
    bundle = load_bundle(TERMINAL)
    assert {name: len(split.tasks) for name, split in bundle.splits.items()} == {"all": 90, "eval": 30, "train": 60}
    assert bundle.left_out == ()
    for split, each in (("train", 10), ("eval", 5)):
        found = Counter(task.tags["family"] for task in bundle.splits[split].tasks)
        assert found == dict.fromkeys(FAMILIES, each)


def test_no_two_tasks_are_alike() -> None:
    criteria = [json.dumps(task["steps"][-1]["criteria"]) for task in tasks()]
    assert len(set(criteria)) == len(criteria)


def test_a_prompt_shows_nothing_of_its_criteria() -> None:
    for task in tasks():
        prompt = task["steps"][-2]["prompt"] + task["steps"][-2]["system_prompt"]
        assert not any(row["bash_cmd"] in prompt for row in task["steps"][-1]["criteria"])


@pytest.mark.parametrize("family", FAMILIES)
def test_untouched_files_meet_only_the_criteria_that_take_away(family: str, tmp_path: Path) -> None:
    """So that doing nothing is worth exactly 0, and nothing is worth more before than after. (Run here, unsandboxed:
    they are our own commands.)"""
    task = next(task for task in tasks() if task["tags"]["family"] == family)
    os.symlink(TERMINAL / "artifacts" / task["name"], tmp_path / "job")
    for row in task["steps"][-1]["criteria"]:
        done = subprocess.run(["bash", "-c", row["bash_cmd"]], cwd=tmp_path / "job", capture_output=True, timeout=20)
        assert (done.returncode == 0) == (row["weight"] < 0), row
