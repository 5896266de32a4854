"""What the examples' hooks write and the report makes of it; no GPU, no Miles."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

TINY = Path(__file__).parents[2] / "examples" / "tiny"
RESULTS = sorted((TINY / "results").glob("*.json"))


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TINY.parent))
    monkeypatch.syspath_prepend(str(TINY))


def sample(group: int, index: int, reward: float) -> SimpleNamespace:
    told = {
        "index": index,
        "status": "scored",
        "end_reason": "replied",
        "seconds": {"deploy": 0.5, "model": 2.0, "total": 2.5},
        "turns": 2,
        "tool_calls": 1,
    }
    return SimpleNamespace(
        group_index=group,
        index=10 * group + index,
        reward=reward,
        response_length=7,
        metadata={"agentenv": told, "agent_metrics": {}, "reward": reward},
    )


def row(duration: int) -> str:
    return json.dumps({"messages": [{"role": "user", "content": f"Battery:\nduration: {duration} h (at most ...)"}]})


def test_a_run_is_read_from_record_and_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks, report = importlib.import_module("hooks"), importlib.import_module("report")
    monkeypatch.setenv(hooks.RECORD, str(tmp_path / "record.jsonl"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "eval.jsonl").write_text(f"{row(1)}\n{row(4)}\n")
    log = "x perf 0: {'perf/step_time': 10.0, 'other': nan}\nx step 0: {'train/grad_norm': 0.5}\n"
    (tmp_path / "miles.log").write_text(log)
    evals = [sample(0, 0, 0.2), sample(0, 0, 0.4), sample(1, 1, 0.0), sample(1, 1, 1.0)]
    lost = SimpleNamespace(reward=None, metadata=None, response_length=0)
    assert hooks.log_eval_rollout(0, None, {"eval": {"samples": [*evals, lost]}}, {}) is False
    drops = {"rollout/dynamic_filter/drop_agentenv_failed": 2}
    assert hooks.log_rollout(0, None, [[sample(0, 3, 0.5)], [sample(1, 4, 1.0)]], dict(drops), 4.0) is False
    hooks.log_eval_rollout(9, None, {"eval": {"samples": evals}}, {})
    run = report.read_run(tmp_path)
    assert run["durations"] == [1, 4]
    assert [(one["after_steps"], one["rewards"]) for one in run["evals"]] == [
        (0, [[0.2, 0.4], [0.0, 1.0]]),
        (10, [[0.2, 0.4], [0.0, 1.0]]),
    ]
    assert run["evals"][0]["zeros"] == 0.4, "a lost sample counts as 0, as in Miles"
    step = run["steps"][0]
    assert (step["reward"], step["seconds_rollout"], step["seconds_env"]) == (0.75, 4.0, 0.5)
    assert (step["seconds_step"], step["grad_norm"], step["drops"]) == (10.0, 0.5, drops)


def test_the_first_of_a_steps_updates_stands_for_it(tmp_path: Path) -> None:
    report = importlib.import_module("report")
    updates = [f"x step {number}: {{'train/grad_norm': {number}.5}}\n" for number in range(4)]
    perf = [f"x perf {step}: {{'perf/step_time': {step + 10}.0}}\n" for step in range(2)]
    (tmp_path / "miles.log").write_text("".join(updates + perf))
    two = {0: {"grad_norm": 0.5, "seconds_step": 10.0}, 1: {"grad_norm": 2.5, "seconds_step": 11.0}}
    assert report._logged(tmp_path / "miles.log", 2) == two
    (tmp_path / "miles.log").write_text("".join(updates[:3] + perf))
    assert report._logged(tmp_path / "miles.log", 2) == two, "a run that was cut between two updates"


def test_an_interval_is_of_days_not_of_samples() -> None:
    report = importlib.import_module("report")
    few = report.interval([[0.0, 0.0], [1.0, 1.0]])
    assert few == report.interval([[0.0] * 50, [1.0] * 50])
    assert few[0] == 0.5
    assert few[1] < 0 < 1 < few[2]


def test_the_control_is_rewarded_for_what_others_did() -> None:
    hooks = importlib.import_module("hooks")
    samples = [sample(group, index, group + index / 10) for group in range(4) for index in range(8)]
    logged, advantages = hooks.shuffled_rewards(None, samples)
    assert logged == [one.reward for one in samples]
    by_group = [advantages[start : start + 8] for start in range(0, 32, 8)]
    for group in by_group:
        assert sum(group) == pytest.approx(0, abs=1e-6)
    assert any(group != sorted(group) for group in by_group), "the order within a group says nothing any more"
    assert hooks.shuffled_rewards(None, samples) == (logged, advantages)
    assert hooks.shuffled_rewards(None, [sample(0, index, 0.5) for index in range(8)])[1] == [0.0] * 8


def test_the_training_script_parses_and_names_hooks_that_exist() -> None:
    subprocess.run(["bash", "-n", TINY / "train.sh"], check=True, timeout=30)
    script = (TINY / "train.sh").read_text()
    for name in ("hooks.log_rollout", "hooks.log_eval_rollout", "filters.keep_and_count"):
        assert f"-path {name} " in script or f"-path {name}\n" in script
        module, _, function = name.partition(".")
        assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("path", RESULTS, ids=[path.stem for path in RESULTS])
def test_every_result_is_whole(path: Path) -> None:
    run: dict[str, Any] = json.loads(path.read_text())
    assert len(run["durations"]) == 200
    for one in run["evals"]:
        assert len(one["rewards"]) == 200
        assert all(0 <= reward <= 1 for rewards in one["rewards"] for reward in rewards)
    assert [step["step"] for step in run["steps"]] == list(range(len(run["steps"])))


def test_tables_and_plot_come_from_the_results() -> None:
    command = [sys.executable, TINY / "report.py"]
    table = subprocess.run([*command, "table", *RESULTS], check=True, capture_output=True, text=True, timeout=30).stdout
    plot = subprocess.run([*command, "plot", *RESULTS], check=True, capture_output=True, text=True, timeout=30).stdout
    rule = subprocess.run([*command, "rule", *RESULTS], check=True, capture_output=True, text=True, timeout=30).stdout
    for path in RESULTS:
        assert f"| {path.stem} | 0 |" in table
        assert f">{path.stem}</text>" in plot
        assert f"| {path.stem} | " in rule
    assert ElementTree.fromstring(plot).tag == "{http://www.w3.org/2000/svg}svg"
