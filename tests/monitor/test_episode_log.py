"""One line an episode, with its reward or its reason, as text and as JSON."""

import json
import logging

import pytest

from agent_env.monitor.episode_log import EpisodeLog, JsonLines
from tests.monitor.test_traces import event


def play(*middle: tuple[str, dict[str, object]]) -> None:
    log = EpisodeLog()
    log(event("deployed", seconds=0.01, envs=["x"]))
    for kind, data in middle:
        log(event(kind, **data))
    log(event("closed", seconds=0.002))


CALL = ("call", {"tool": "t", "arguments": {}, "seconds": 0.5, "result": "", "error": None})
WRONG = ("call", {"tool": "t", "arguments": {}, "seconds": 0.5, "result": "", "error": "invalid_args"})
SCORED = ("scored", {"seconds": 0.03, "reward": 0.25, "scores": {"s": 0.25}})
LOST = ("failed", {"reason": "env_lost", "message": "exit status 1"})


def test_a_scored_episode_is_one_line_at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    play(CALL, WRONG, SCORED)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    text = record.getMessage()
    for part in ("@local/b/t", "e1", "scored", "reward=0.25", "calls=2", "tool=1.000s", "errors=invalid_args:1"):
        assert part in text


def test_a_failed_episode_is_one_line_at_warning_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    play(CALL, LOST)
    (record,) = caplog.records
    assert "env_lost" in record.getMessage()
    assert record.getMessage().endswith(": exit status 1")


def test_one_that_its_client_left_is_told_as_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    play(CALL)
    assert "abandoned" in caplog.records[0].getMessage()


def test_json_lines_hold_the_episodes_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    play(CALL, SCORED)
    line = json.loads(JsonLines().format(caplog.records[0]))
    assert line["episode"]["reward"] == 0.25
    assert line["episode"]["seconds"]["score"] == 0.03
    assert line["level"] == "INFO"
    assert "\n" not in JsonLines().format(caplog.records[0])
