"""The helpdesk bundle: its files, its env's rules, and what they are worth."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import load_bundle

HELPDESK = Path(__file__).parents[2] / "bundles" / "helpdesk-v1"


@pytest.fixture(scope="module")
def tasks() -> list[dict[str, Any]]:
    lines = [line for split in ("train", "eval") for line in (HELPDESK / "tasks" / f"{split}.jsonl").open()]
    return [json.loads(line) for line in lines]


def step(task: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(step for step in task["steps"] if step["id"] == name)
    return found


def inbox(task: dict[str, Any]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = step(task, "inbox")["directives"][0]["args"]["tickets"]
    return found


def test_drawing_again_gives_the_files_that_are_here() -> None:
    command = [sys.executable, "-B", str(HELPDESK / "build.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_every_task_is_served_and_gives_three_scores() -> None:
    bundle = load_bundle(HELPDESK)
    assert {name: len(split.tasks) for name, split in bundle.splits.items()} == {"all": 88, "eval": 24, "train": 64}
    assert bundle.left_out == ()
    assert [scoring.scores for scoring in bundle.scorings] == [("triage", "answer", "changes")]
    task = bundle.splits["all"].tasks[0]
    assert (len(task.turns), task.env_ids) == (3, ("tickets", "directory"))


def test_no_two_tasks_are_alike(tasks: list[dict[str, Any]]) -> None:
    assert len({json.dumps(task["steps"]) for task in tasks}) == len(tasks)


def test_each_inbox_has_a_change_to_make_and_one_to_refuse(tasks: list[dict[str, Any]]) -> None:
    for task in tasks:
        asked = sum(ticket["team"] == "records" for ticket in inbox(task))
        allowed = step(task, "allowed")["directives"][0]["args"]["allowed"]
        assert (asked, str(len(allowed))) == (3, task["tags"]["changes"])
        assert len(allowed) in (1, 2)


def test_no_team_or_priority_wins_by_itself(tasks: list[dict[str, Any]]) -> None:
    tickets = [ticket for task in tasks for ticket in inbox(task)]
    for key, most in (("team", 0.5), ("priority", 0.45)):
        counts = Counter(ticket[key] for ticket in tickets)
        assert len(counts) >= 4
        assert max(counts.values()) / len(tickets) <= most


def test_a_question_takes_its_answer_and_not_a_list_of_all_answers(tasks: list[dict[str, Any]]) -> None:
    answers = Counter(step(task, "answer")["criteria"][0]["pattern"] for task in tasks)
    assert max(answers.values()) <= len(tasks) * 0.2  # nothing that is always said is often right
    pattern = next(pattern for pattern in answers if "Falk" in pattern)
    assert re.search(pattern, "irene falk.", re.IGNORECASE)
    assert not re.search(pattern, "Irene Falk, Marco Stein, Noor Haddad", re.IGNORECASE)


def test_no_tool_shows_where_a_ticket_belongs() -> None:
    shown = runpy.run_path(str(HELPDESK / "envs" / "tickets" / "server.py"))["SHOWN"]
    assert not {"team", "priority"} & set(shown)


def test_the_readme_says_what_the_oracle_file_documents() -> None:
    documented = (HELPDESK / "oracle.py").read_text()
    for policy, mean in re.findall(
        r"^\| (no-op|hasty|oracle) \| ([\d.]+) ", (HELPDESK / "README.md").read_text(), re.M
    ):
        assert re.search(rf'"{policy}": {float(mean):g}\b', documented.replace("0.0}", "0}").replace("1.0,", "1,"))
