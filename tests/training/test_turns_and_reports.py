"""Tasks of several turns, and what a rollout reports, against scripted doubles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.training.chat_server import END, Answer, ChatServer, call, completion, histories
from tests.training.env_server import EnvServer, EpisodeFails
from tests.training.playing import outcome, play, results


async def test_end_turns_result_is_the_next_prompt() -> None:
    env = EnvServer(turns=("And 4?",), scores={"a": 1, "b": 0.5})
    first = completion(None, call("end_turn", {"response": "5"}))
    chat = ChatServer(first, completion(None, call("add", {"x": 4})), END)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["scores"] == {"a": 1.0, "b": 0.5}
    assert histories(chat)[1][3] == {"role": "tool", "tool_call_id": "call_0", "content": "And 4?"}


async def test_a_new_system_prompt_comes_with_its_turn() -> None:
    env = EnvServer(turns=({"prompt": "And 4?", "system_prompt": "Now in French."},))
    chat = ChatServer(completion(None, call("end_turn", {"response": "5"})), END)
    await play(env, chat)
    assert results(chat)[0]["content"] == "Now in French.\n\nAnd 4?"


async def test_calls_after_an_end_turn_are_answered_and_not_run() -> None:
    """They were written for a turn that is over."""
    env = EnvServer(turns=("And 4?",))
    reply = completion(
        None, call("end_turn", {"response": "5"}), call("add", {"x": 4}, "c2"), call("end_turn", "{}", "c3")
    )
    chat = ChatServer(reply, END)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert env.sessions[0].calls == [("end_turn", {"response": "5"}), ("end_turn", {"response": "done"})]
    assert [one["tool_call_id"] for one in results(chat)] == ["call_0", "c2", "c3"]
    assert results(chat)[1]["content"].startswith("Not run: ")


# -- what is reported ------------------------------------------------------------------------------------------------


async def test_the_report_says_how_it_went() -> None:
    env = EnvServer()
    chat = ChatServer(completion(None, call("add", {"x": 1}), call("add", "[]")), END)
    result = await play(env, chat)
    assert set(result) == {"reward", "agentenv", "agent_metrics"}
    report = result["agentenv"]
    assert report["episode_id"] == env.sessions[0].resets[0]["episode_id"]
    assert report["session_id"] == "0f" * 16
    assert (report["task_id"], report["split"], report["index"]) == ("@local/double/three", "train", 3)
    assert env.sessions[0].resets == [{"split": "train", "index": 3, "episode_id": report["episode_id"]}]
    assert (report["turns"], report["tool_calls"], report["invalid_arguments"], report["recoveries"]) == (2, 3, 1, 0)
    seconds = report["seconds"]
    assert set(seconds) == {"wait", "deploy", "model", "tool", "score", "total"}
    outside = sum(seconds[phase] for phase in ("wait", "deploy", "tool", "score"))
    assert result["agent_metrics"]["total_tool_time"] == pytest.approx(outside)
    assert outside + seconds["model"] <= seconds["total"] + 0.001


async def test_the_episode_timeout_bounds_the_whole_rollout() -> None:
    result = await play(EnvServer(), ChatServer(Answer(body=END, delay=30)), episode_timeout=0.5)
    assert outcome(result) == ("failed", "model_timeout", 0.0)
    assert result["agentenv"]["seconds"]["total"] < 3


async def test_text_that_is_no_unicode_doesnt_reach_the_report() -> None:
    """Miles' v2 sends what run returns as UTF-8."""

    def reward(session: Any) -> Any:
        raise EpisodeFails("unscored", "bad \ud800 text")

    result = await play(EnvServer(reward=reward), ChatServer(END))
    assert json.dumps(result, ensure_ascii=False, allow_nan=False).encode()
