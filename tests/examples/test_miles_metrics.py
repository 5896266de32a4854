"""The example log functions, with a stand-in for Miles' tracking."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.examples.doubles import bare, sample

ARGS = Namespace()


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import miles_metrics

    return miles_metrics


@pytest.fixture
def tracked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], str]]:
    """What is sent to Miles' trackers: (metrics, step key)."""
    sent: list[tuple[dict[str, Any], str]] = []
    for name in ("miles", "miles.utils", "miles.utils.metric_utils", "miles.utils.tracking_utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    tracking = ModuleType("tracking")
    tracking.log = lambda args, values, step_key: sent.append((values, step_key))  # type: ignore[attr-defined]
    sys.modules["miles.utils.tracking_utils"].tracking = tracking  # type: ignore[attr-defined]
    sys.modules["miles.utils.metric_utils"].compute_rollout_step = lambda args, step: step * 10  # type: ignore[attr-defined]
    return sent


def test_a_steps_numbers_join_those_that_miles_logs(metrics: Any) -> None:
    extra = {"rollout/dynamic_filter/drop_agentenv_env_lost": 1}
    samples = [sample(turns=2), [sample("max_turns", 0.25, turns=4)]]
    assert metrics.log_rollout(3, ARGS, samples, extra, 12.0) is False
    assert extra == {
        "rollout/dynamic_filter/drop_agentenv_env_lost": 1,
        "rollout/agentenv/total_tool_time/mean": 0.5,
        "rollout/agentenv/total_tool_time/max": 0.5,
        "rollout/agentenv/turns/mean": 3,
        "rollout/agentenv/turns/max": 4,
        "rollout/agentenv/tool_errors/mean": 0,
        "rollout/agentenv/tool_errors/max": 0,
        "rollout/agentenv/seconds_deploy/mean": 0.25,
        "rollout/agentenv/seconds_deploy/max": 0.25,
        "rollout/agentenv/seconds_model/mean": 2.0,
        "rollout/agentenv/seconds_model/max": 2.0,
        "rollout/agentenv/end_end_turn": 0.5,
        "rollout/agentenv/end_max_turns": 0.5,
        "rollout/agentenv/scored": 1.0,
        "rollout/agentenv/reward_scored": 0.375,
    }


def test_an_evals_numbers_tell_failed_from_scored(metrics: Any, tracked: list[Any]) -> None:
    data = {"eval": {"rewards": [1.0, 0.0], "samples": [sample(reward=1.0), sample("env_lost"), bare()]}}
    assert metrics.log_eval_rollout(2, ARGS, data, None) is False
    [(values, step_key)] = tracked
    assert (step_key, values["eval/step"]) == ("eval/step", 20)
    assert values["eval/eval/agentenv/reward_scored"] == 1.0
    assert values["eval/eval/agentenv/scored"] == pytest.approx(1 / 3)
    assert values["eval/eval/agentenv/end_env_lost"] == pytest.approx(1 / 3)
    assert values["eval/eval/agentenv/end_no_metadata"] == pytest.approx(1 / 3)


def test_an_eval_without_samples_logs_nothing_of_ours(metrics: Any) -> None:
    extra: dict[str, Any] = {}
    metrics.log_eval_rollout(2, ARGS, {"eval": {"rewards": []}}, extra)
    assert extra == {}


def test_without_a_dict_of_miles_the_numbers_go_to_its_trackers(metrics: Any, tracked: list[Any]) -> None:
    metrics.log_rollout(1, ARGS, [sample()], None, 1.0)
    [(values, step_key)] = tracked
    assert (step_key, values["rollout/step"], values["rollout/agentenv/scored"]) == ("rollout/step", 10, 1.0)
