"""The env as a model and a verifier meet it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.env import ToolError
from agent_env.env.testing import Driver
from tests.bundles.gridsim import VERIFY, GridSim, baselines, rules

DAY = baselines.days("eval")[2]
IDLE = [0] * 24
BEST, BEST_PLAN = rules.optimum(DAY)


@pytest.fixture
def env() -> Iterator[Driver]:
    with Driver(GridSim) as driver:
        driver.call_extension("load_day", day=DAY)
        yield driver


@pytest.fixture
def verify(env: Driver, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The verifier, on this env's data: () -> (score, result, description)."""

    async def row() -> tuple[float, bool, str]:
        monkeypatch.setitem(VERIFY["verify"].__globals__, "data", lambda mcp_url: data)
        (found,) = await VERIFY["verify"]("http://127.0.0.1:1/mcp")
        return found["score"], found["result"], found["description"]

    def run() -> tuple[float, bool, str]:
        nonlocal data
        data = env.data()
        return asyncio.run(row())

    data: dict[str, Any] = {}
    return run


def test_the_optimum_scores_one_and_the_reply_says_what_it_makes(env: Driver, verify: Any) -> None:
    called = env.call("submit_schedule", schedule=BEST_PLAN)
    assert not called.is_error
    assert called.text == f"Accepted: it keeps the rules and makes ${BEST / 10_000:.2f}. There is nothing more to do."
    assert verify() == (1.0, True, f"made {BEST} of {BEST} hundredths of a cent")


def test_idling_scores_a_fifth(env: Driver, verify: Any) -> None:
    assert "makes $0.00" in env.call("submit_schedule", schedule=IDLE).text
    assert verify()[:2] == (0.2, False)


def test_a_loss_scores_nothing(env: Driver, verify: Any) -> None:
    called = env.call("submit_schedule", schedule=[1, *IDLE[1:]])
    assert called.text.startswith("Accepted: it keeps the rules and makes -$43.34.")
    assert verify()[0] == 0.0


def test_a_broken_rule_is_graded_nothing_and_named(env: Driver, verify: Any) -> None:
    called = env.call("submit_schedule", schedule=[-1, *IDLE[1:]])
    assert not called.is_error
    assert called.text.startswith("Rejected: hour 0 takes out 1 MWh, but only 0 MWh are stored. The score is 0")
    assert verify() == (0.0, False, "hour 0 takes out 1 MWh, but only 0 MWh are stored")


def test_nothing_submitted_scores_nothing(verify: Any) -> None:
    assert verify() == (0.0, False, "no schedule was submitted")


def test_without_a_day_the_tool_refuses_and_the_verifier_raises(env: Driver, verify: Any) -> None:
    env.env.day = None  # type: ignore[attr-defined]
    assert env.call("submit_schedule", schedule=IDLE).text == "no day is loaded"
    with pytest.raises(RuntimeError, match="no day was loaded"):
        verify()


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("[0, 0, 0]", 'expected an array (each item an integer), got the string "[0, 0, 0]"'),
        (IDLE[1:], "schedule: 23 items, fewer than 24"),
        ([*IDLE, 0], "schedule: 25 items, more than 24"),
        ([True, *IDLE[1:]], "schedule[0]: expected an integer, got the boolean true"),
        ([*IDLE[1:], 1.0], "schedule[23]: expected an integer, got the number 1.0"),
        (["1", *IDLE[1:]], 'schedule[0]: expected an integer, got the string "1"'),
        ([None, *IDLE[1:]], "schedule[0]: expected an integer, got null"),
        (None, "got null"),
        ({}, "got an object"),
    ],
)
def test_a_malformed_list_may_be_mended(env: Driver, verify: Any, schedule: Any, why: str) -> None:
    called = env.call("submit_schedule", schedule=schedule)
    assert called.is_error
    assert why in called.text
    assert env.data()["schedule"] is None
    assert not env.call("submit_schedule", schedule=BEST_PLAN).is_error
    assert verify()[0] == 1.0


@pytest.mark.parametrize("first", [IDLE, [-1, *IDLE[1:]]])
def test_only_the_first_schedule_counts(env: Driver, first: list[int]) -> None:
    env.call("submit_schedule", schedule=first)
    before = env.data()
    called = env.call("submit_schedule", schedule=BEST_PLAN)
    assert called.is_error
    assert "submitted already" in called.text
    assert env.data() == before


def test_resetting_forgets_the_submission_and_keeps_the_day(env: Driver) -> None:
    env.call("submit_schedule", schedule=IDLE)
    env.reset_data()
    found = env.data()
    assert (found["day"], found["schedule"], found["profit"], found["broken"]) == (DAY, None, None, None)


@pytest.mark.parametrize(
    "change",
    [{"prices": [0] * 23}, {"prices": [0.5] * 24}, {"power": 0}, {"duration": 0}, {"efficiency": 101}, {"wear": -1}],
)
def test_an_impossible_day_is_refused(env: Driver, change: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="day"):
        env.call_extension("load_day", day={**DAY, **change})
    assert env.data()["day"] == DAY


schedules = st.lists(st.integers(-12, 12), min_size=24, max_size=24)


def possible(wanted: list[int]) -> list[int]:
    """`wanted`, cut to what DAY's battery can do."""
    stored, schedule = 0, []
    for move in wanted:
        schedule.append(max(-stored, -DAY["power"], min(move, DAY["power"], 2 * DAY["power"] - stored)))
        stored += schedule[-1]
    return schedule


@given(schedule=schedules | schedules.map(possible))
def test_no_reply_tells_of_a_better_schedule(schedule: list[int]) -> None:
    with Driver(GridSim) as env:
        env.call_extension("load_day", day=DAY)
        reply = env.call("submit_schedule", schedule=schedule).text
        made = env.data()["profit"]
    dollars = re.findall(r"-?\$\d+\.\d\d", reply)
    assert dollars == ([] if made is None else [f"{'-' if made < 0 else ''}${abs(made) / 10_000:.2f}"])


def test_the_model_sees_one_tool_and_no_answer(env: Driver) -> None:
    (tool,) = env.tools()
    assert tool["name"] == "submit_schedule"
    schedule = tool["inputSchema"]["properties"]["schedule"]
    assert (schedule["type"], schedule["items"]) == ("array", {"type": "integer"})
    assert (schedule["minItems"], schedule["maxItems"]) == (24, 24)
    assert str(BEST) not in str(env.card())
