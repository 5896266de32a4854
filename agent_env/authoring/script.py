"""Policies written as scripts: what an author plays a task with, in a bundle's `oracle.py`.

    from agent_env.authoring.script import Moves, answer, call, scripted

    def bisect(prompt: str) -> Moves:
        low, high = 1, 100
        while True:
            middle = (low + high) // 2
            said = yield call("guess", number=middle)
            if said == "right":
                break
            low, high = (middle + 1, high) if said == "higher" else (low, middle - 1)
        yield answer("done")

    POLICIES = {"oracle": scripted(bisect)}

A script sees what a model sees, and nothing else: so a score it reaches is one that a model can reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

from agent_env.training.policies import Call, Policy, Reply

__all__ = ["Moves", "Script", "answer", "call", "scripted"]

END_TURN = "end_turn"

Moves: TypeAlias = Generator[Any, Any, None]
"""Yields a Call and gets its result's text, or a list of Calls, made in one message, and gets the list of their texts.
What `answer(...)` gets is the next turn's prompt. Where it returns, the open turn ends, and all that follow."""
Script: TypeAlias = Callable[[str], Moves]
"""First turn's prompt -> what is done."""


def call(name: str, /, **arguments: Any) -> Call:
    """A tool call. arguments: what JSON can hold."""
    return Call(name, json.dumps(arguments))


def answer(response: str) -> Call:
    """The end of the turn, with this answer."""
    return call(END_TURN, response=response)


def scripted(script: Script) -> Policy:
    """The policy that plays a script.

    It keeps no state, as policies must not: for each message it plays the script from its beginning, with the results
    that the chat holds. So the script must do the same each time: no clock, no chance.
    """

    def policy(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], request: Mapping[str, Any]) -> Reply:
        texts = iter([str(message.get("content") or "") for message in messages if message.get("role") == "tool"])
        prompt = next((str(m.get("content") or "") for m in messages if m.get("role") == "user"), "")
        playing = script(prompt)
        given: Any = None
        for _ in range(sum(message.get("role") == "assistant" for message in messages)):
            try:
                wanted = playing.send(given)
            except StopIteration:
                return Reply(calls=(answer(""),))
            given = [next(texts, "") for _ in wanted] if isinstance(wanted, list) else next(texts, "")
        try:
            wanted = playing.send(given)
        except StopIteration:
            return Reply(calls=(answer(""),))
        return Reply(calls=tuple(wanted) if isinstance(wanted, list) else (wanted,))

    return policy
