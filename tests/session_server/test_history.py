"""The history rules, each as a chat that keeps or breaks it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.training.policies import Reply
from agent_env.training.session_server.history import BadRequest, Session, message_matches
from tests.session_server.doubles import TOOL, USER, call, says, session, tool_result


async def test_an_appended_history_is_recorded_without_a_warning() -> None:
    async with session(says(call(), Reply("done"))) as chat:
        first = await chat.turn(USER)
        await chat.turn(USER, first, tool_result(first))
        seen = await chat.seen()
    assert [record["response"]["choices"][0]["finish_reason"] for record in seen["records"]] == ["tool_calls", "stop"]
    assert seen["records"][1]["request"]["messages"] == [USER, first, tool_result(first)]
    assert seen["metadata"] == {"policy": "test", "warnings": []}


@pytest.mark.parametrize(
    "change",
    [
        {"content": None},
        {"content": []},
        {"name": "x", "extra": 1},
        {"reasoning_content": ""},
    ],
)
async def test_fields_that_render_alike_are_the_same_message(change: dict[str, Any]) -> None:
    async with session(says(call(), Reply("done"))) as chat:
        first = await chat.turn(USER)
        await chat.turn(USER, first | change, tool_result(first))
        assert len((await chat.seen())["records"]) == 2


async def test_tool_calls_are_compared_but_for_their_index() -> None:
    async with session(says(call(), Reply("done"))) as chat:
        first = await chat.turn(USER)
        calls = [{key: value for key, value in first["tool_calls"][0].items() if key != "index"}]
        await chat.turn(USER, first | {"tool_calls": calls}, tool_result(first))
        assert len((await chat.seen())["records"]) == 2


async def test_reserialised_arguments_discard_the_turn_with_a_warning() -> None:
    async with session(says(call('{"x":  1}'), Reply("done"))) as chat:
        first = await chat.turn(USER)
        function = first["tool_calls"][0]["function"] | {"arguments": '{"x": 1}'}
        changed = first | {"tool_calls": [first["tool_calls"][0] | {"function": function}]}
        await chat.turn(USER, changed, tool_result(first))
        seen = await chat.seen()
    assert len(seen["records"]) == 1
    assert "turn 1 was discarded" in seen["metadata"]["warnings"][0]
    assert "differs from the history at message 1" in seen["metadata"]["warnings"][0]


async def test_the_same_request_again_replaces_the_answer() -> None:
    async with session(says(Reply("one"), Reply("two"))) as chat:
        await chat.turn(USER)
        await chat.turn(USER)
        seen = await chat.seen()
    assert [record["response"]["choices"][0]["message"]["content"] for record in seen["records"]] == ["two"]
    assert "was sent again" in seen["metadata"]["warnings"][0]


async def test_another_tool_result_discards_only_the_turn_after_it() -> None:
    async with session(says(call(), Reply("one"), Reply("two"))) as chat:
        first = await chat.turn(USER)
        await chat.turn(USER, first, tool_result(first))
        await chat.turn(USER, first, tool_result(first, "another"))
        seen = await chat.seen()
    assert [record["response"]["choices"][0]["message"]["content"] for record in seen["records"]] == ["", "two"]
    assert "turn 2 was discarded" in seen["metadata"]["warnings"][0]


async def test_two_turns_back_is_refused_and_changes_nothing() -> None:
    async with session(says(call(), call(), Reply("done"))) as chat:
        first = await chat.turn(USER)
        second = await chat.turn(USER, first, tool_result(first))
        refused = await chat.send({"role": "user", "content": "other"})
        assert refused.status_code == 400
        assert refused.json()["error"].startswith(
            "rollback failed: discard_count=2 exceeds max_assistant_rollback_steps=1"
        )
        await chat.turn(USER, first, tool_result(first), second, tool_result(second))
        assert len((await chat.seen())["records"]) == 3


async def test_an_assistant_message_of_the_client_is_prompt_not_turn() -> None:
    said = {"role": "assistant", "content": "example"}
    async with session(says(Reply("one"), Reply("two"))) as chat:
        first = await chat.turn(USER, said, USER)
        await chat.turn(USER, said, USER, first, USER)
        assert len((await chat.seen())["records"]) == 2


async def test_a_role_that_the_template_does_not_take_is_refused_after_the_first_turn() -> None:
    system = {"role": "system", "content": "be brief"}
    async with session(says(Reply("one"), Reply("two")), append_roles=frozenset({"user", "tool"})) as chat:
        first = await chat.turn(system, USER)
        refused = await chat.send(system, USER, first, system)
        assert refused.status_code == 400
        assert refused.json()["error"].startswith("appended message at index 3 has role='system'")


async def test_tools_left_out_of_a_later_request_turn_calls_into_text() -> None:
    async with session(says(call(), call())) as chat:
        first = await chat.turn(USER)
        second = await chat.turn(USER, first, tool_result(first), tools=None)
        warnings = (await chat.seen())["metadata"]["warnings"]
    assert second["tool_calls"] is None
    assert second["content"] == '<tool_call>\n{"name": "look", "arguments": {"x":  1}}\n</tool_call>'
    assert "`tools` is missing" in warnings[0]


async def test_other_tools_in_a_later_request_are_warned_of() -> None:
    async with session(says(call(), Reply("x"))) as chat:
        first = await chat.turn(USER)
        await chat.turn(USER, first, tool_result(first), tools=[TOOL, TOOL])
        assert "`tools` differs" in (await chat.seen())["metadata"]["warnings"][0]


async def test_a_turn_after_a_cut_one_is_warned_of() -> None:
    async with session(says(Reply("x" * 100, finish_reason="length"), Reply("x"))) as chat:
        first = await chat.turn(USER)
        await chat.turn(USER, first, USER)
        assert "cut by the token limit" in (await chat.seen())["metadata"]["warnings"][0]


async def test_a_tool_result_in_parts_is_warned_of() -> None:
    async with session(says(call(), Reply("x"))) as chat:
        first = await chat.turn(USER)
        await chat.turn(USER, first, tool_result(first, [{"type": "text", "text": "ok"}]))
        assert "renders empty" in (await chat.seen())["metadata"]["warnings"][0]


@pytest.mark.parametrize("field", ["logprobs", "input_ids", "return_meta_info", "lora_path"])
async def test_a_field_that_the_server_sets_is_warned_of(field: str) -> None:
    async with session(says(Reply("x"))) as chat:
        await chat.turn(USER, **{field: 1})
        assert repr(field) in (await chat.seen())["metadata"]["warnings"][0]


async def test_the_fields_of_miles_own_requests_pass() -> None:
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "skip_special_tokens": False, "no_stop_trim": True}
    async with session(says(Reply("x")), strict=True) as chat:
        await chat.turn(USER, max_tokens=100, **sampling)
        request = (await chat.seen())["records"][0]["request"]
    assert (request["logprobs"], request["return_meta_info"], request["no_stop_trim"]) == (True, True, False)
    assert request["top_k"] == -1


async def test_strict_refuses_what_would_not_be_trained_on_and_keeps_the_history() -> None:
    async with session(says(call(), Reply("done")), strict=True) as chat:
        first = await chat.turn(USER)
        refused = await chat.send(USER)
        assert refused.status_code == 400
        assert "was sent again" in refused.json()["error"]
        await chat.turn(USER, first, tool_result(first))
        assert len((await chat.seen())["records"]) == 2


values = st.one_of(st.none(), st.text("ab", max_size=2), st.just([]), st.lists(st.integers(), min_size=1, max_size=2))
messages = st.dictionaries(
    st.sampled_from(["role", "content", "reasoning_content", "tool_calls", "name", "tool_call_id"]), values
)


@given(messages)
def test_every_message_matches_itself(message: dict[str, Any]) -> None:
    assert message_matches(message, dict(message))


@given(messages, messages)
def test_matching_is_symmetric_and_blind_to_what_is_not_rendered(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert message_matches(one, two) == message_matches(two, one)
    assert message_matches(one | {"name": "a"}, two | {"name": "b"}) == message_matches(one, two)


@given(messages, st.sampled_from(["role", "content", "reasoning_content", "tool_calls"]))
def test_a_changed_rendered_field_never_matches(message: dict[str, Any], field: str) -> None:
    assert not message_matches(message, message | {field: "something else"})


replies = st.builds(
    lambda content, calls: {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": arguments}}
            for number, arguments in enumerate(calls)
        ]
        or None,
    },
    st.text("ab\n", max_size=4),
    st.lists(st.sampled_from(["{}", "[1]", '"x"', "null", '{"a":  1}']), max_size=2),
)


def played(turns: list[dict[str, Any]]) -> tuple[Session, list[dict[str, Any]]]:
    """A strict session after an honest client has played these replies, and the client's history."""
    session, history = Session(id="s", policy="p", strict=True), [USER]
    for reply in turns:
        prepared = session.prepare({"messages": list(history), "tools": [TOOL]})
        response = {"choices": [{"message": reply, "finish_reason": "stop"}]}
        session.commit(len(session.records), 0.0, prepared, response)
        history = [*history, reply, *({"role": "tool", "content": "ok"} for _ in reply["tool_calls"] or [0])]
    return session, history


@given(st.lists(replies, max_size=4))
def test_a_client_that_only_appends_is_never_refused(turns: list[dict[str, Any]]) -> None:
    session, _ = played(turns)
    assert len(session.records) == len(turns)
    assert session.warnings == []


@given(st.lists(replies, min_size=1, max_size=4), st.data())
def test_a_client_that_changes_what_was_said_is_refused_wherever_it_does(
    turns: list[dict[str, Any]], data: st.DataObject
) -> None:
    session, history = played(turns)
    at = data.draw(st.integers(0, len(session.messages) - 1))
    history[at] = history[at] | {"content": "something else"}
    with pytest.raises(BadRequest):
        session.prepare({"messages": history, "tools": [TOOL]})
    assert len(session.records) == len(turns)
