"""How a rollout ends, against scripted doubles: the failure contract, row by row."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_env.training import episode as episode_module
from tests.training.chat_server import END, Answer, ChatServer, Drop, Scripted, call, completion
from tests.training.env_server import Close, EnvServer, EpisodeFails, Fail
from tests.training.playing import outcome, play
from tests.training.row import PROMPT, TOOLS, openai_tools

CONTEXT = Answer(400, {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."})


async def test_end_turn_scores_the_episode() -> None:
    env = EnvServer(reward=0.75)
    chat = ChatServer(completion(None, call("add", {"x": 5})), completion("done", call("end_turn", {"response": "5"})))
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 0.75)
    assert result["agentenv"]["error"] is None
    assert result["agentenv"]["scores"] == {"verify": 0.75}
    assert env.sessions[0].calls == [("add", {"x": 5}), ("end_turn", {"response": "5"})]
    first, second = chat.requests
    assert first["messages"] == list(PROMPT)
    assert first["tools"] == second["tools"] == openai_tools(TOOLS)
    assert first["temperature"] == 1.1
    assert first["top_k"] == -1
    assert second["messages"][2:] == [
        {"role": "assistant", "content": None, "tool_calls": [call("add", {"x": 5})]},
        {"role": "tool", "tool_call_id": "call_0", "content": "total 5"},
    ]


async def test_a_reply_without_a_call_ends_the_turn() -> None:
    env = EnvServer(reward=0.5)
    result = await play(env, ChatServer(completion("It is 5.")))
    assert outcome(result) == ("scored", "replied", 0.5)
    assert env.sessions[0].calls == [("end_turn", {"response": "It is 5."})]


async def test_a_reply_that_utf8_cant_hold_reaches_the_env_all_the_same() -> None:
    env = EnvServer()
    assert outcome(await play(env, ChatServer(completion("half \ud83d a pair")))) == ("scored", "replied", 1.0)
    assert env.sessions[0].calls == [("end_turn", {"response": "half ? a pair"})]


async def test_turns_after_a_reply_end_empty() -> None:
    """Case 27 too: an empty message is never followed by a request."""
    env = EnvServer(turns=("Second?", "Third?"))
    chat = ChatServer(completion(""))
    result = await play(env, chat)
    assert outcome(result) == ("scored", "replied", 1.0)
    assert env.sessions[0].calls == [("end_turn", {"response": ""})] * 3
    assert len(chat.requests) == 1


async def test_the_limit_of_turns_scores_the_env_as_it_stands() -> None:
    """Case 21: the calls of the last reply still run, and no request follows."""
    env = EnvServer(turns=("Second?",), reward=lambda session: session.total / 10)
    chat = ChatServer(completion(None, call("add", {"x": 1})))
    result = await play(env, chat, max_turns=3)
    assert outcome(result) == ("scored", "max_turns", 0.3)
    assert len(chat.requests) == 3
    assert env.sessions[0].calls == [("add", {"x": 1})] * 3 + [("end_turn", {"response": ""})] * 2


@pytest.mark.parametrize("arguments", ['{"x": 1', '{"x": 1}'])
async def test_length_cut_turn_runs_nothing(arguments: str) -> None:
    """Case 4."""
    env = EnvServer(reward=0.25)
    chat = ChatServer(completion("so", call("add", arguments), finish="length"))
    result = await play(env, chat)
    assert outcome(result) == ("scored", "length", 0.25)
    assert env.sessions[0].calls == [("end_turn", {"response": ""})]
    assert len(chat.requests) == 1


async def test_a_used_up_context_scores_the_env_as_it_stands() -> None:
    env = EnvServer(reward=lambda session: session.total / 10)
    result = await play(env, ChatServer(completion(None, call("add", {"x": 2})), CONTEXT))
    assert outcome(result) == ("scored", "context_overflow", 0.2)


@pytest.mark.parametrize(
    ("tokens", "requests", "total"), [((900, 1100, None), 2, 1), ((900, 1000), 2, 2), ((None, None, 1001), 3, 2)]
)
async def test_a_used_up_session_budget_ends_it(tokens: tuple[int | None, ...], requests: int, total: int) -> None:
    """Case 32: what the trainer cuts off doesn't run; a reply that just fits does."""
    env = EnvServer(reward=lambda session: session.total)
    chat = ChatServer(*(completion(None, call("add", {"x": 1}), tokens=count) for count in tokens))
    result = await play(env, chat, extra={"max_seq_len": 1000})
    assert outcome(result) == ("scored", "context_overflow", float(total))
    assert len(chat.requests) == requests


async def test_invalid_calls_in_a_row_end_it_scored() -> None:
    """Case 22."""
    env = EnvServer(reward=0.5)
    bad = completion(None, call("add", "[]"))
    chat = ChatServer(bad, bad, completion(None, call("add", {"x": 1})), bad, completion(None, call("nope")), bad, END)
    result = await play(env, chat, max_invalid_calls=3)
    assert outcome(result) == ("scored", "invalid_tool_calls", 0.5)
    assert len(chat.requests) == 6


async def test_tool_errors_are_no_invalid_calls() -> None:
    """Case 22: what the env fails doesn't count."""

    def broken(session: Any, arguments: Any) -> Any:
        raise Fail("execution_error", "no")

    env = EnvServer(tools={"add": broken})
    result = await play(env, ChatServer(*[completion(None, call("add"))] * 5, END), max_invalid_calls=2)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["tool_errors"] == 5


async def test_a_deploy_that_keeps_failing_is_a_failure() -> None:
    def fails(session: Any, data: Any) -> Any:
        raise EpisodeFails("deploy_failed", "no such image")

    env, chat = EnvServer(reset=fails), ChatServer(END)
    result = await play(env, chat, reset_timeout=1.5)
    assert outcome(result) == ("failed", "deploy_failed", 0.0)
    assert "no such image" in result["agentenv"]["error"]
    assert len(env.sessions) > 1
    assert chat.requests == []


def times_out(session: Any, arguments: Any) -> Any:
    raise Fail("timeout", "too slow")


@pytest.mark.parametrize(("setting", "wanted"), [("fail", ("failed", 0.0)), ("score", ("scored", 0.5))])
async def test_a_call_past_its_deadline_fails_or_scores_by_setting(setting: str, wanted: tuple[str, float]) -> None:
    env = EnvServer(tools={"add": times_out}, reward=0.5)
    chat = ChatServer(completion(None, call("add"), call("note")), END)
    result = await play(env, chat, on_call_timeout=setting)
    assert outcome(result) == (wanted[0], "call_timeout", wanted[1])
    assert len(chat.requests) == 1
    assert ("note", {}) not in env.sessions[0].calls


async def test_a_server_that_keeps_no_deadline_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_module, "CALL_GRACE", 0.1)

    async def hangs(session: Any, arguments: Any) -> Any:
        await asyncio.sleep(60)

    env = EnvServer(tools={"add": hangs})
    result = await play(env, ChatServer(completion(None, call("add")), END), call_timeout=0.2, on_call_timeout="score")
    assert outcome(result) == ("failed", "call_timeout", 0.0)


async def test_a_lost_env_that_may_not_be_recovered_is_a_failure() -> None:
    """Case 48, with recovery off: one flagged result, at once, and no second reset."""
    for code in (None, 1001, 1011, 1012, 1013):

        def closes(session: Any, arguments: Any, code: int | None = code) -> Any:
            raise Close(code, "restarting")

        env = EnvServer(tools={"add": closes})
        result = await play(env, ChatServer(completion(None, call("add")), END), recover=0)
        assert outcome(result) == ("failed", "env_lost", 0.0)
        assert f"code {code or 1006}" in result["agentenv"]["error"]
        assert len(env.sessions) == 1


async def test_a_model_that_misses_its_deadline_is_a_failure() -> None:
    result = await play(EnvServer(), ChatServer(Answer(body=END, delay=30)), model_timeout=0.3)
    assert outcome(result) == ("failed", "model_timeout", 0.0)


@pytest.mark.parametrize(
    "answer", [Drop(), Answer(404, {"error": "session not found"}), Answer(200, b"<html>"), Answer(200, b"")]
)
async def test_a_session_that_fails_is_a_failure(answer: Scripted) -> None:
    """Case 36: flagged with its cause, and the env is closed."""
    result = await play(EnvServer(), ChatServer(answer))
    assert outcome(result) == ("failed", "model_error", 0.0)
    assert "session" in result["agentenv"]["error"]


@pytest.mark.parametrize("reward", [None, "0.5", [1.0], {"a": 1}])
async def test_a_reward_that_is_no_number_is_unscored(reward: Any) -> None:
    """Case 82; JSON carries no NaN, servers send null for it."""
    result = await play(EnvServer(reward=reward, scores={}), ChatServer(END))
    assert outcome(result) == ("failed", "unscored", 0.0)


async def test_an_infinite_reward_is_unscored() -> None:
    """Case 82: 1e400 is JSON, and infinite."""

    def reward(session: Any) -> Any:
        return float("inf")

    result = await play(EnvServer(reward=reward), ChatServer(END))
    assert outcome(result) == ("failed", "unscored", 0.0)


@pytest.mark.parametrize(("reward", "wanted"), [(True, 1.0), (False, 0.0), (0, 0.0), (-2, -2.0)])
async def test_rewards_become_floats(reward: Any, wanted: float) -> None:
    result = await play(EnvServer(reward=reward), ChatServer(END))
    assert outcome(result) == ("scored", "end_turn", wanted)
    assert type(result["reward"]) is float


async def test_a_verifier_that_fails_leaves_it_unscored() -> None:
    """Cases 84 and 85: its message is kept."""

    def reward(session: Any) -> Any:
        raise EpisodeFails("unscored", "the reward function raised KeyError: 'c'")

    result = await play(EnvServer(reward=reward), ChatServer(END))
    assert outcome(result) == ("failed", "unscored", 0.0)
    assert "KeyError: 'c'" in result["agentenv"]["error"]


@pytest.mark.parametrize(
    "answer",
    [completion("half", finish="abort"), Answer(503, {"error": "upstream generation aborted before completion"})],
)
async def test_an_aborted_generation_aborts_the_rollout(answer: Scripted) -> None:
    result = await play(EnvServer(), ChatServer(answer))
    assert outcome(result) == ("failed", "aborted", 0.0)
