"""`agent-env check`: what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_env.cli import main
from tests.bundle import good


def test_a_good_bundle_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "shop-v1: Sells things."
    assert lines[1].startswith("fingerprint ")
    assert lines[2:] == [
        "",
        "splits",
        "  all: 4 tasks",
        "  some: 2 tasks",
        "  train: 3 tasks",
        "",
        "envs",
        "  shop: process, python server.py",
        "  store (alias of shop): process, python server.py",
        "",
        "scores",
        "  4 tasks: sold (the reward is sold)",
        "",
        "left out: 0 tasks",
    ]


def test_docker_and_open_rewards_are_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "envs" / "shop" / "Dockerfile").write_text('FROM node\nCMD ["node", "x.js"]\n')
    two = [*good.steps(), {**good.steps()[5], "id": "kept", "verifier_id": "kept"}]
    (folder / "tasks" / "zz.json").write_text(json.dumps(two))
    assert main(["check", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "  shop: Docker, since Dockerfile line 1: its base image is node, not python\n" in out
    assert "  1 task: sold, kept (several: the server needs reward=)\n" in out


def test_left_out_tasks_are_named_by_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = [*good.steps(), {"id": "judge", "type": "rubrics_verifier"}]
    tasks = [json.dumps({"name": f"t{n}", "steps": judged}) for n in range(12)]
    (folder / "tasks" / "zz.jsonl").write_text("\n".join(tasks))
    assert main(["check", str(folder)]) == 0
    assert capsys.readouterr().out.endswith(
        "left out: 12 tasks\n"
        "  steps of type 'rubrics_verifier' can't be played (step 'judge', rubrics_verifier)\n"
        "    t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, and 2 more\n"
    )
    assert main(["check", "--all", "--strict", str(folder)]) == 1
    assert capsys.readouterr().out.endswith("t9, t10, t11\n")


def test_problems_go_to_stderr_one_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "tasks" / "first.json").write_text(json.dumps(good.change(0, env_id=3)))
    (folder / "evals" / "some.toml").write_text("tasks = []")
    assert main(["check", str(folder)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f"{folder}: 2 problems",
        '  evals/some.toml: tasks: it is no list of task names; write tasks = ["NAME", ...]',
        "  tasks/first.json: [0].env_id: it is 3; write a text",
    ]


def test_a_bundle_without_a_playable_task_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(good.play(tmp_path, good.steps()[:5]))]) == 1
    printed = capsys.readouterr()
    assert "left out: 1 task\n" in printed.out
    assert "shop-v1 can't be served: it has no task that can be played" in printed.err


@pytest.mark.parametrize("address", ["no-such-bundle", "./nowhere", "hf://x"])
def test_no_bundle_is_wrong_usage(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", address]) == 2
    assert capsys.readouterr().err.startswith(f"{address}: 1 problem\n")
