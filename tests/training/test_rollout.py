"""The whole loop against scripted doubles: every row of the failure contract, and what a model may do in between."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_env.training import episode as episode_module
from agent_env.training.miles import agent
from tests.training.doubles import (
    PROMPT,
    TOOLS,
    Answer,
    ChatServer,
    Close,
    Drop,
    EnvServer,
    EpisodeFails,
    Fail,
    Scripted,
    call,
    completion,
    histories,
    metadata,
    openai_tools,
)

END = completion(None, call("end_turn", {"response": "done"}, "call_end"))
CONTEXT = Answer(400, {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."})


async def play(
    env: EnvServer, chat: ChatServer, *, extra: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """One rollout through `agent.run` on the two doubles. Every one must give plain JSON and close its env."""
    async with env.serve(), chat.serve():
        result = await agent.run(
            base_url=chat.base_url,
            prompt=list(PROMPT),
            request_kwargs={"temperature": 1.1, "top_k": -1},
            metadata={**metadata(env.url, **settings), **(extra or {})},
        )
        json.dumps(result, allow_nan=False)
    assert env.live == 0
    return result


def outcome(result: dict[str, Any]) -> tuple[str, str, float]:
    return result["agentenv"]["status"], result["agentenv"]["end_reason"], result["reward"]


def results(chat: ChatServer) -> list[dict[str, Any]]:
    """The tool messages of the last request."""
    return [message for message in histories(chat)[-1] if message["role"] == "tool"]


# -- the failure contract, row by row --------------------------------------------------------------------------------


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
    import asyncio

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


# -- tool calls ------------------------------------------------------------------------------------------------------


async def test_a_call_whose_arguments_are_no_object_is_answered_and_goes_on() -> None:
    """Cases 1 and 19: the model's error, not the env's."""
    bad = '"{\\"x\\": 3}"'
    env, chat = EnvServer(), ChatServer(completion(None, call("add", bad)), END)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["invalid_arguments"] == 1
    assert env.sessions[0].calls == [("end_turn", {"response": "done"})]
    (answer,) = results(chat)
    assert answer["content"].startswith("The arguments must be a JSON object, but they are a string")
    assert histories(chat)[1][2]["tool_calls"][0]["function"]["arguments"] == bad


@pytest.mark.parametrize("missing", ["", "  ", None, "absent"])
async def test_missing_arguments_are_an_empty_object(missing: str | None) -> None:
    """Case 2: the tool decides whether it needs some."""
    made = call("note", missing)
    if missing == "absent":
        del made["function"]["arguments"]
    env, chat = EnvServer(), ChatServer(completion(None, made), END)
    assert outcome(await play(env, chat)) == ("scored", "end_turn", 1.0)
    assert env.sessions[0].calls[0] == ("note", {})


@pytest.mark.parametrize("name", ["sumbit_schedule", "", None, 7, {"a": 1}])
async def test_an_unknown_tool_is_answered_with_the_tools_there_are(name: Any) -> None:
    """Case 6."""
    env, chat = EnvServer(), ChatServer(completion(None, call(name)), END)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["unknown_tools"] == 1
    assert results(chat)[0]["content"].endswith("The tools are: add, end_turn, note.")
    assert [name for name, _ in env.sessions[0].calls] == ["end_turn"]


@pytest.mark.parametrize("function", [None, "add", []])
async def test_a_call_without_a_function_is_answered(function: Any) -> None:
    chat = ChatServer(completion(None, {"id": "c", "type": "function", "function": function}), END)
    assert outcome(await play(EnvServer(), chat)) == ("scored", "end_turn", 1.0)
    assert results(chat)[0]["tool_call_id"] == "c"


@pytest.mark.parametrize("ids", [("call_0", "call_0"), ("", ""), (None, None), ("b", "a")])
async def test_calls_are_run_and_answered_by_position(ids: tuple[Any, Any]) -> None:
    """Cases 8 and 9: never keyed by id or by name."""
    env = EnvServer()
    chat = ChatServer(completion(None, call("add", {"x": 1}, ids[0]), call("add", {"x": 5}, ids[1])), END)
    await play(env, chat)
    assert env.sessions[0].calls[:2] == [("add", {"x": 1}), ("add", {"x": 5})]
    assert [(one["tool_call_id"], one["content"]) for one in results(chat)] == [
        (ids[0], "total 1"),
        (ids[1], "total 6"),
    ]


async def test_a_call_without_an_id_is_answered_with_null() -> None:
    """Case 8."""
    made = call("add", {"x": 1})
    del made["id"]
    chat = ChatServer(completion(None, made), END)
    await play(EnvServer(), chat)
    assert results(chat)[0]["tool_call_id"] is None


async def test_arguments_that_came_decoded_are_an_object_and_go_back_decoded() -> None:
    """Case 14."""
    made = {"id": "c", "type": "function", "function": {"name": "add", "arguments": {"x": 3}}}
    env, chat = EnvServer(), ChatServer(completion(None, made), END)
    await play(env, chat)
    assert env.sessions[0].calls[0] == ("add", {"x": 3})
    assert histories(chat)[1][2]["tool_calls"] == [made]


async def test_values_reach_the_env_as_the_model_wrote_them() -> None:
    """Case 13."""
    values = [{"text": "[0,0,0]"}, {"text": [True, False]}, {"text": ["1"]}, {"text": [1.0]}, {"text": '{"a":1}'}]
    env = EnvServer(tools={"note": lambda session, arguments: "ok"})
    await play(env, ChatServer(completion(None, *(call("note", value) for value in values)), END))
    assert json.dumps([arguments for _, arguments in env.sessions[0].calls[:5]]) == json.dumps(values)


@pytest.mark.parametrize(
    ("tool", "shown"),
    [
        (lambda session, arguments: {"content": [], "is_error": True}, "(no output)"),
        (lambda session, arguments: {"content": [{"type": "text", "text": "bad x"}], "is_error": True}, "bad x"),
    ],
)
async def test_a_tools_own_error_is_shown_to_the_model(tool: Any, shown: str) -> None:
    """Case 33."""
    chat = ChatServer(completion(None, call("add")), END)
    result = await play(EnvServer(tools={"add": tool}), chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["tool_errors"] == 1
    assert results(chat)[0]["content"] == shown


@pytest.mark.parametrize(
    ("kind", "count"),
    [("execution_error", "tool_errors"), ("invalid_args", "invalid_arguments"), ("tool_not_found", "unknown_tools")],
)
async def test_errors_are_counted_by_their_kind(kind: str, count: str) -> None:
    def fails(session: Any, arguments: Any) -> Any:
        raise Fail(kind, "the reason")

    chat = ChatServer(completion(None, call("add")), END)
    result = await play(EnvServer(tools={"add": fails}), chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert results(chat)[0]["content"] == "the reason"
    counts = {name: result["agentenv"][name] for name in ("tool_errors", "invalid_arguments", "unknown_tools")}
    assert counts == {**dict.fromkeys(counts, 0), count: 1}


async def test_a_long_result_is_cut() -> None:
    """Case 30."""
    env = EnvServer(tools={"note": lambda session, arguments: "x" * 2_000_000})
    chat = ChatServer(completion(None, call("note")), END)
    result = await play(env, chat, max_result_chars=1000)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert len(results(chat)[0]["content"]) <= 1000
    assert "2000000 characters" in results(chat)[0]["content"]
    assert result["agentenv"]["cut_results"] == 1


async def test_arguments_that_no_message_carries_are_the_models_error() -> None:
    """Case 51: never sent, never retried."""
    env, chat = EnvServer(), ChatServer(completion(None, call("note", {"text": "x" * 17_000_000})), END)
    result = await play(env, chat, model_timeout=60.0)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert "over the limit" in results(chat)[0]["content"]
    assert len(env.sessions) == 1


async def test_markup_that_no_parser_took_apart_is_a_reply_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Case 11."""
    chat = ChatServer(completion('<tool_call>{"name": "add"}</tool_call>', finish="tool_calls"))
    result = await play(EnvServer(), chat)
    assert outcome(result) == ("scored", "replied", 1.0)
    assert result["agentenv"]["unparsed_tool_markup"] == 1
    assert len(chat.requests) == 1
    assert "--sglang-tool-call-parser" in caplog.text


async def test_a_reply_of_reasoning_alone_ends_the_turn() -> None:
    """Cases 21 and 27."""
    chat = ChatServer(completion(None, reasoning_content="hmm"))
    assert outcome(await play(EnvServer(), chat)) == ("scored", "replied", 1.0)
    assert len(chat.requests) == 1


# -- tasks of several turns ------------------------------------------------------------------------------------------


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
