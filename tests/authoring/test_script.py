"""Scripts as policies."""

from __future__ import annotations

import json
from typing import Any

from agent_env.authoring.script import Moves, answer, call, scripted
from agent_env.training.policies import Policy, Reply


def chat(policy: Policy, results: Any, *, turns: int) -> list[Reply]:
    """What the policy says in a chat whose tools answer each call with results(name, arguments)."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "rules"}, {"role": "user", "content": "go"}]
    said = []
    for _ in range(turns):
        reply = policy(messages, [], {})
        said.append(reply)
        calls = [
            {"id": str(n), "function": {"name": c.name, "arguments": c.arguments}} for n, c in enumerate(reply.calls)
        ]
        messages.append({"role": "assistant", "content": reply.content, "tool_calls": calls})
        for one in reply.calls:
            messages.append({"role": "tool", "content": results(one.name, json.loads(one.arguments))})
    return said


def test_a_script_gets_the_prompt_each_result_and_the_next_prompt() -> None:
    seen: list[Any] = []

    def script(prompt: str) -> Moves:
        one = yield call("look", place="here")
        both = yield [call("look", place="a"), call("look", place="b")]
        following = yield answer("done")
        last = yield call("look", place="there")
        seen[:] = [prompt, one, both, following, last]

    replies = chat(scripted(script), lambda name, given: f"{name} {given}", turns=5)
    assert [[c.name for c in reply.calls] for reply in replies] == [
        ["look"],
        ["look", "look"],
        ["end_turn"],
        ["look"],
        ["end_turn"],
    ]
    assert seen == [
        "go",
        "look {'place': 'here'}",
        ["look {'place': 'a'}", "look {'place': 'b'}"],
        "end_turn {'response': 'done'}",
        "look {'place': 'there'}",
    ]


def test_a_script_that_has_ended_ends_every_turn_that_is_left() -> None:
    def script(prompt: str) -> Moves:
        yield call("look")

    replies = chat(scripted(script), lambda name, given: "", turns=4)
    assert [reply.calls[0].name for reply in replies] == ["look", "end_turn", "end_turn", "end_turn"]
    assert json.loads(replies[-1].calls[0].arguments) == {"response": ""}


def test_a_policy_keeps_no_state_between_chats() -> None:
    def script(prompt: str) -> Moves:
        said = yield call("look")
        yield call("say", text=said)

    policy = scripted(script)
    first = chat(policy, lambda name, given: "one", turns=2)
    second = chat(policy, lambda name, given: "two", turns=2)
    assert [json.loads(chat[1].calls[0].arguments)["text"] for chat in (first, second)] == ["one", "two"]
