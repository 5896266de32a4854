"""The history that a session is sent: append-only, and every message as it came."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.training.history import History
from tests.training.row import PROMPT
from tests.training.strategies import JSON


def test_an_assistants_message_goes_back_as_it_came() -> None:
    """Case 24: key order, spacing in arguments, unknown fields, nulls: all kept, nothing added."""
    arguments = '{"b": 1,  "a": 2}'
    reply = {
        "x_meta": {"z": 1, "a": [None]},
        "role": "assistant",
        "content": "",
        "tool_calls": [{"index": 0, "id": "c", "function": {"arguments": arguments, "name": "add"}}],
        "reasoning_content": None,
    }
    history = History(PROMPT)
    history.add_reply(copy.deepcopy(reply))
    assert json.dumps(json.loads(history.json())[-1]) == json.dumps(reply)


@pytest.mark.parametrize("content", [{"content": None}, {"content": ""}, {"content": "text"}])
def test_content_is_never_rewritten(content: dict[str, Any]) -> None:
    """Case 26."""
    history = History(PROMPT)
    history.add_reply({"role": "assistant", **content})
    assert json.loads(history.json())[-1] == {"role": "assistant", **content}


def test_a_missing_content_is_added_as_null() -> None:
    """Case 26."""
    history = History(PROMPT)
    history.add_reply({"role": "assistant", "tool_calls": []})
    assert json.loads(history.json())[-1] == {"role": "assistant", "tool_calls": [], "content": None}


def test_the_prompt_is_copied() -> None:
    prompt = [dict(message) for message in PROMPT]
    history = History(prompt)
    history.add_result("c", "x")
    assert prompt == list(PROMPT)
    prompt[0]["content"] = "changed"
    assert json.loads(history.json())[0] == PROMPT[0]


@pytest.mark.parametrize("call_id", ["", None, "call_0", 7])
def test_a_result_has_its_calls_id_as_received(call_id: Any) -> None:
    """Case 8."""
    history = History([])
    history.add_result(call_id, "x")
    assert json.loads(history.json()) == [{"role": "tool", "tool_call_id": call_id, "content": "x"}]


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=6))
def test_every_history_begins_with_the_one_before_it(replies: list[dict[str, Any]]) -> None:
    history = History(PROMPT)
    before = history.json()
    for place, reply in enumerate(replies):
        history.add_reply(reply)
        history.add_result(place, "result")
        now = history.json()
        assert now.startswith(before[:-1] + ",")
        assert json.loads(now)[: len(json.loads(before))] == json.loads(before)
        before = now
    assert json.loads(before) == json.loads(json.dumps(history.messages))
