"""Failing rollouts are held back while nothing succeeds, and said once."""

from __future__ import annotations

import itertools
import logging

import pytest

from agent_env.training.backoff import FailureBrake, delays
from agent_env.training.notices import Notices
from agent_env.training.types import EndReason, RolloutResult, Status

SCORED = RolloutResult(status=Status.SCORED, end_reason=EndReason.END_TURN, reward=1.0)


def failed(reason: EndReason = EndReason.DEPLOY_FAILED) -> RolloutResult:
    message = "cannot connect to http://envs:8200: [Errno 111] Connection refused"
    return RolloutResult(status=Status.FAILED, end_reason=reason, reward=0.0, error=message)


@pytest.fixture
def brake() -> FailureBrake:
    return FailureBrake(logging.getLogger("agent_env.training.test"))


def test_failures_in_a_row_are_held_longer_and_longer(brake: FailureBrake) -> None:
    """Case 90: a trainer that refills without bound must not spin through its data."""
    held = [brake.delay(failed()) for _ in range(200)]
    assert held[:8] == [0.0] * 8
    assert held[8] > 0
    assert held == sorted(held)
    assert held[-1] == FailureBrake.CAP


def test_the_first_success_ends_it(brake: FailureBrake) -> None:
    for _ in range(50):
        brake.delay(failed())
    assert brake.delay(SCORED) == 0.0
    assert brake.delay(failed()) == 0.0


def test_causes_are_counted_apart(brake: FailureBrake) -> None:
    """A few timeouts among many working rollouts are no outage."""
    for _ in range(8):
        brake.delay(failed(EndReason.DEPLOY_FAILED))
    assert brake.delay(failed(EndReason.MODEL_TIMEOUT)) == 0.0
    assert brake.delay(failed(EndReason.DEPLOY_FAILED)) > 0.0


def test_aborted_rollouts_are_never_held(brake: FailureBrake) -> None:
    assert [brake.delay(failed(EndReason.ABORTED)) for _ in range(50)] == [0.0] * 50


def test_ten_thousand_equal_failures_are_a_few_lines(brake: FailureBrake, caplog: pytest.LogCaptureFixture) -> None:
    """Case 115: the first at once with its cause and its fix, then few that count."""
    for _ in range(10_000):
        brake.delay(failed())
    assert len(caplog.records) <= 20
    first = caplog.records[0].getMessage()
    assert first.startswith("a rollout failed: deploy_failed: cannot connect to http://envs:8200: [Errno 111]")
    assert "fix: check that the env server runs" in first


def test_an_outage_is_said_loudly_once_it_is_one(brake: FailureBrake, caplog: pytest.LogCaptureFixture) -> None:
    """Case 90: the line names count, cause and fix."""
    for _ in range(9):
        brake.delay(failed())
    loud = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(loud) == 1
    assert loud[0].startswith("9 rollouts in a row failed: deploy_failed: cannot connect to http://envs:8200")


def test_notices_of_a_kind_come_once_a_minute_and_count(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    notices = Notices(logging.getLogger("agent_env.training.test"), every=60.0, clock=lambda: now)
    assert notices.say("a", logging.WARNING, "first")
    for _ in range(100):
        now += 0.5
        assert not notices.say("a", logging.WARNING, "again")
    assert notices.say("b", logging.WARNING, "other")
    now += 20.0
    assert notices.say("a", logging.WARNING, "later")
    said = [record.getMessage() for record in caplog.records]
    assert said == ["first", "other", "later (100 more like it since the last such line)"]


def test_delays_double_up_to_their_cap_and_are_half_random() -> None:
    """Case 124: those who failed together don't come back together."""
    spans = [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    for _ in range(50):
        for span, delay in zip(spans, itertools.islice(delays(0.5, 8.0), len(spans)), strict=True):
            assert span / 2 <= delay <= span
    assert len({next(delays(0.5, 8.0)) for _ in range(50)}) > 40
