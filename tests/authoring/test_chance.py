"""The random policy: arguments that fit, and the same play each time."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.authoring.chance import arguments_for, random_policy
from agent_env.env.schema import type_of

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("look", "end_turn")
]


def chat(turns: int, prompt: str = "go") -> list[dict[str, Any]]:
    return [{"role": "user", "content": prompt}, *[{"role": "assistant", "content": ""}] * turns]


def test_it_calls_tools_and_then_ends_the_turn_and_again_in_the_next() -> None:
    names = [random_policy(chat(turn), TOOLS, {}).calls[0].name for turn in range(12)]
    assert names == [*["look"] * 5, "end_turn"] * 2


def test_it_plays_alike_in_equal_chats_and_otherwise_in_others() -> None:
    tools = [{"function": {"name": name}} for name in "abcdefgh"]
    plays = [[random_policy(chat(turn, prompt), tools, {}) for turn in range(5)] for prompt in ("x", "x", "y")]
    assert plays[0] == plays[1] != plays[2]


@pytest.mark.parametrize(
    "annotation",
    [int, float, str, bool, None, list[int], tuple[int, str], dict[str, int], int | str, list[list[bool]]],
)
@given(seed=st.integers(0, 10**6))
def test_arguments_fit_what_our_envs_take(annotation: Any, seed: int) -> None:
    compiled = type_of(annotation)
    value = json.loads(json.dumps(arguments_for(compiled.schema, random.Random(seed))))
    compiled.check(value, "value")


@given(seed=st.integers(0, 10**6))
def test_bounds_lengths_enums_and_references_are_kept(seed: int) -> None:
    schema = {
        "type": "object",
        "required": ["n", "text", "pick", "items", "ref"],
        "properties": {
            "n": {"type": "integer", "minimum": 3, "maximum": 5},
            "text": {"type": "string", "minLength": 4, "maxLength": 6},
            "pick": {"enum": ["a", 2]},
            "items": {"type": "array", "items": {"const": 7}, "minItems": 2, "maxItems": 3},
            "ref": {"$ref": "#/$defs/flag"},
            "maybe": {"type": ["null", "boolean"]},
        },
        "$defs": {"flag": {"type": "boolean"}},
    }
    value = arguments_for(schema, random.Random(seed))
    assert 3 <= value["n"] <= 5
    assert 4 <= len(value["text"]) <= 6
    assert value["pick"] in ("a", 2)
    assert value["items"] in ([7] * 2, [7] * 3)
    assert isinstance(value["ref"], bool)
    assert value.get("maybe") in (None, True, False)


def test_a_schema_that_holds_itself_comes_to_an_end() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert json.dumps(arguments_for(schema, random.Random(0))).count("next") < 10
