"""The scripted policies, against GridSim's own tasks and rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_env.training.policies import (
    POLICIES,
    Reply,
    end_turn,
    greedy,
    gridsim_policy,
    idle,
    load_policy,
    optimum,
    read_day,
)
from tests.bundles.gridsim import BUNDLE, baselines, rules


@pytest.fixture(scope="module")
def tasks() -> list[tuple[dict[str, Any], str]]:
    """(the day as the env is given it, the prompt) of every eval task."""
    found = []
    for line in (BUNDLE / "tasks" / "eval.jsonl").read_text().splitlines():
        steps = {step["type"]: step for step in json.loads(line)["steps"]}
        day = steps["apply_server_config"]["directives"][0]["args"]["day"]
        found.append((day, steps["prompt_agent"]["prompt"]))
    return found


def test_every_prompt_tells_the_day_that_the_env_is_given(tasks: list[tuple[dict[str, Any], str]]) -> None:
    assert len(tasks) == 200
    for day, prompt in tasks:
        read = read_day(prompt)
        assert (read.power, read.duration, read.efficiency, read.wear, list(read.prices)) == tuple(day.values())


def test_the_plans_are_the_bundles_own(tasks: list[tuple[dict[str, Any], str]]) -> None:
    for day, prompt in tasks:
        read = read_day(prompt)
        best, _ = rules.optimum(day)
        assert rules.profit(day, optimum(read)) == best
        assert greedy(read) == baselines.greedy(day)
        assert rules.profit(day, idle(read)) == 0


@pytest.mark.parametrize(
    ("prompt", "what"),
    [("hello", "prices of 0 hours"), ("".join(f"{hour}: 1.00\n" for hour in range(24)), "no line `power: ...`")],
)
def test_another_prompt_is_refused_by_what_it_lacks(prompt: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_day(prompt)


def test_a_policy_reads_only_the_chat_and_ends_after_its_plan(tasks: list[tuple[dict[str, Any], str]]) -> None:
    chat = [{"role": "system", "content": "x"}, {"role": "user", "content": tasks[0][1]}]
    policy = gridsim_policy(idle, first=["[1]"])
    replies = []
    for _ in range(3):
        reply = policy(chat, (), {})
        replies.append((reply.calls[0].name, reply.calls[0].arguments))
        chat += [{"role": "assistant", "content": ""}, {"role": "tool", "content": "ok"}]
    assert replies == [
        ("submit_schedule", "[1]"),
        ("submit_schedule", json.dumps({"schedule": [0] * 24})),
        ("end_turn", '{"response": "Done."}'),
    ]


def custom(messages: Any, tools: Any, request: Any) -> Reply:
    return Reply("mine")


def test_policies_load_by_name_or_from_a_module() -> None:
    assert load_policy("end-turn") is end_turn
    assert load_policy(f"{__name__}:custom")([], [], {}) == Reply("mine")
    assert set(POLICIES) == {"idle", "greedy", "optimum", "malformed", "end-turn"}
