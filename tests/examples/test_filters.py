"""The example filter, without Miles and with each of its two class names."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agent_env.training.rehearsal import Sample
from tests.examples.doubles import bare, sample

ARGS = Namespace(n_samples_per_prompt=2, reward_key=None)


@pytest.fixture
def filters(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    import filters

    return filters


@pytest.fixture(params=["FilterOutput", "DynamicFilterOutput"])
def miles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type:
    """Miles' module that holds the class, under one of the names that it has had."""

    @dataclass
    class Output:
        keep: bool
        reason: str | None = None

    for name in ("miles", "miles.rollout", "miles.rollout.filter_hub", "miles.rollout.filter_hub.base_types"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    setattr(sys.modules["miles.rollout.filter_hub.base_types"], request.param, Output)
    return Output


def test_miles_own_class_carries_the_verdict_and_the_cause(filters: Any, miles: type) -> None:
    kept = filters.keep_and_count(ARGS, [sample(), sample()])
    dropped = filters.keep_and_count(ARGS, [sample(), sample("env_lost")])
    assert type(kept) is type(dropped) is miles
    assert (kept.keep, kept.reason) == (True, None)
    assert (dropped.keep, dropped.reason) == (False, "agentenv_env_lost")


def test_without_miles_the_verdict_is_the_truth_value(filters: Any) -> None:
    assert filters.keep_and_count(ARGS, [sample(), sample()])
    assert not filters.keep_and_count(ARGS, [sample(), bare()])


@pytest.mark.parametrize(
    ("group", "cause"),
    [
        ([sample(), sample("deploy_failed")], "deploy_failed"),
        ([sample("unscored"), sample("env_lost"), sample("env_lost")], "env_lost"),
        ([sample(), bare()], "aborted"),
        ([sample(), bare(Sample.Status.COMPLETED)], "no_metadata"),
        ([sample(), sample(reward=None)], "no_reward"),
        ([sample(), sample("made_up")], "other"),
        ([[sample(), sample("model_timeout")], [sample()]], "model_timeout"),
        ([], "other"),
    ],
)
def test_the_cause_is_the_most_frequent_one(filters: Any, group: list[Any], cause: str) -> None:
    output = filters.keep_and_count(ARGS, group)
    assert (output.keep, output.reason) == (False, f"agentenv_{cause}")


def test_there_are_few_causes(filters: Any) -> None:
    assert len(filters.CAUSES | {"aborted", "no_metadata", "no_reward", "other", "equal_rewards"}) <= 12


def test_a_group_of_equal_rewards_can_be_left_out_too(filters: Any) -> None:
    equal = filters.keep_varied_and_count(ARGS, [sample(), [sample()]])
    assert (equal.keep, equal.reason) == (False, "agentenv_equal_rewards")
    assert filters.keep_varied_and_count(ARGS, [sample(), sample(reward=0.25)]).keep
    assert filters.keep_varied_and_count(ARGS, [sample(), sample("env_lost")]).reason == "agentenv_env_lost"
