"""Whatever a session answers: `run` gives a dict of plain JSON, and answers every tool call once."""

from __future__ import annotations

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_env.training.miles import agent
from tests.training.chat_server import END, Answer, ChatServer, Scripted, call, completion
from tests.training.env_server import EnvServer
from tests.training.row import PROMPT, metadata
from tests.training.strategies import JSON

# What JSON text can say and Python's encoder doesn't write by itself.
ODD = JSON | st.sampled_from([float("nan"), float("inf"), 10**400, "\ud800", "x" * 5000])
NAMES = st.sampled_from(["add", "note", "end_turn", "nope", ""])
ARGUMENTS = st.sampled_from(["{}", '{"x": 1}', "", "null", "[]", '{"x": 1, "x": 2}', "{"]) | st.text()
CALL = st.fixed_dictionaries(
    {"function": st.fixed_dictionaries({"name": NAMES, "arguments": ARGUMENTS})},
    optional={"id": st.text(), "type": st.just("function"), "index": JSON},
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": st.none() | st.text(),
        "tool_calls": st.none() | st.lists(CALL, max_size=3),
        "reasoning_content": st.none() | st.text(),
        "extra": JSON,
    },
)
COMPLETION = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"message": MESSAGE},
                optional={"finish_reason": st.none() | st.sampled_from(["stop", "tool_calls", "length", "abort"])},
            ),
            min_size=1,
            max_size=2,
        )
    },
    optional={"usage": st.fixed_dictionaries({"total_tokens": st.integers()})},
)
"""What a session may answer; the fuzz then puts anything in place of any one part of it."""

STEPS = st.lists(st.integers(0, 4), max_size=8)


def replace(value: Any, steps: list[int], by: Any) -> Any:
    """`value` with the part that `steps` lead to replaced; they end early at what has no parts."""
    if not steps or not value or not isinstance(value, dict | list):
        return by
    keys = list(value) if isinstance(value, dict) else range(len(value))
    key = keys[steps[0] % len(value)]
    changed = value.copy()
    changed[key] = replace(value[key], steps[1:], by)
    return changed


class World:
    """The two doubles on an event loop that lasts for all examples."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.replies: list[Any] = []
        self.env = EnvServer()
        self.chat = ChatServer(answer=self._answer)

    def _answer(self, request: dict[str, Any], place: int) -> Scripted:
        reply = self.replies[place] if place < len(self.replies) else END
        return Answer(body=json.dumps(reply).encode())

    async def _begin(self) -> None:
        await self.stack.enter_async_context(self.env.serve())
        await self.stack.enter_async_context(self.chat.serve())

    def begin(self) -> None:
        self.loop.run_until_complete(self._begin())

    def end(self) -> None:
        self.loop.run_until_complete(self.stack.aclose())
        self.loop.close()

    def play(self, *replies: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The result, and the last history that the session saw."""
        self.replies = list(replies)
        self.chat.requests.clear()
        self.env.sessions.clear()
        result = self.loop.run_until_complete(
            agent.run(
                base_url=self.chat.base_url,
                prompt=list(PROMPT),
                request_kwargs={},
                metadata={**metadata(self.env.url), "max_seq_len": 10_000},
            )
        )
        return result, self.chat.requests[-1]["messages"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = World()
    world.begin()
    yield world
    world.end()


@pytest.fixture(autouse=True)
def _not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent._brake, "delay", lambda result: 0.0)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(COMPLETION, STEPS, ODD, st.booleans())
def test_any_reply_gives_a_dict_of_plain_json(
    world: World, reply: Any, steps: list[int], odd: Any, is_odd: bool
) -> None:
    if is_odd:
        reply = replace(reply, steps, odd)
    result, history = world.play(reply)
    text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode()) == result
    assert result["agentenv"]["status"] in ("scored", "failed")
    if len(history) > len(PROMPT):
        message = history[len(PROMPT)]
        answers = history[len(PROMPT) + 1 :]
        # The message went back as it came, and each of its calls was answered once, in order, with its own id.
        sent = copy.deepcopy(reply["choices"][0]["message"])
        assert message == {**sent, **({} if "content" in sent else {"content": None})}
        assert [one["tool_call_id"] for one in answers] == [one.get("id") for one in message.get("tool_calls") or []]
        assert all(isinstance(one["content"], str) and one["content"] for one in answers)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(
        st.builds(call, st.sampled_from(["add", "note", "nope"]), ARGUMENTS, st.text()),
        min_size=1,
        max_size=5,
    )
)
def test_every_tool_call_is_answered_once(world: World, calls: list[dict[str, Any]]) -> None:
    result, history = world.play(completion(None, *calls))
    assert result["agentenv"]["end_reason"] == "end_turn"
    assert [one["tool_call_id"] for one in history if one["role"] == "tool"] == [one["id"] for one in calls]
    counts = Counter({key: result["agentenv"][key] for key in ("invalid_arguments", "unknown_tools")})
    run = [name for name, _ in world.env.sessions[0].calls]
    assert len(run) - 1 == len(calls) - counts.total()
