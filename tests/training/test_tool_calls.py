"""What becomes of the calls a model makes, against scripted doubles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.training.chat_server import END, ChatServer, call, completion, histories
from tests.training.env_server import EnvServer, Fail
from tests.training.playing import outcome, play, results


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
