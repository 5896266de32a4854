"""Arguments of tool calls: a strict JSON object, or a sentence that says what was found."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.training.arguments import MAX_DEPTH, InvalidArguments, parse_arguments
from tests.training.strategies import JSON


@pytest.mark.parametrize("nothing", [None, "", "  ", "\n\t", "null", " null "])
def test_no_arguments_are_an_empty_object(nothing: Any) -> None:
    """Case 2: one behaviour for every way of saying nothing."""
    assert parse_arguments(nothing) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"{\\"hour\\": 3}"', 'a string: "{\\"hour\\": 3}"'),  # case 1
        ("[1, 2]", "an array of 2"),
        ("3", "the number 3"),
        ("true", "the boolean true"),
        ('{"a":1} done', "Extra data (character 8 of 12, at 'done')"),  # case 19, as are the next
        ('{"a":1}{"b":2}', "Extra data"),
        ("{'a':1}", "Expecting property name"),
        ("```json\n{}\n```", "Expecting value"),
        ("\ufeff{}", "BOM"),
        ('{"a":1,}', "not valid JSON"),
        ('{"schedule": [0, 1, 2', "where it ends"),
        ('{"schedule":[0],"schedule":[1]}', "the key 'schedule' more than once"),  # case 16
        ('{"a":{"b":1,"b":2}}', "the key 'b' more than once"),
        ('{"a":NaN}', "NaN"),
        ('{"a":-Infinity}', "-Infinity"),
        ('{"a":1e400}', "out of range"),
        ('{"a":"\\ud800"}', "lone surrogate"),
        ('{"a\\udfff":1}', "lone surrogate"),
        ('{"a": "\x01"}', "not valid JSON"),
        ("[" * 200_000, "nested more than"),  # case 18, as are the next
        ('{"a":' * 500 + "1" + "}" * 500, "nested more than"),
        ('{"n": ' + "9" * 5000 + "}", "too many digits"),
        ([1], "an array of 1"),
        (5, "the number 5"),
        (False, "the boolean false"),
        (b"{}", "of type bytes"),
        ({"a": {1, 2}}, "not JSON"),
        ({"a": float("nan")}, "not JSON"),
    ],
)
def test_what_is_no_object_is_named(text: Any, said: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        parse_arguments(text)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "value",
    [{"schedule": "[0,0,0]"}, {"schedule": [True, False]}, {"s": ["1"]}, {"s": [1.0]}, {"s": '{"a":1}'}, {"s": None}],
)
def test_values_pass_through_unchanged(value: dict[str, Any]) -> None:
    """Case 13: the env's own schema decides, not we."""
    read = parse_arguments(json.dumps(value))
    assert json.dumps(read) == json.dumps(value)


def test_a_mapping_counts_as_an_object() -> None:
    """Case 14: some servers decode the arguments themselves."""
    assert parse_arguments({"hour": 3}) == {"hour": 3}


def test_nesting_up_to_the_limit_is_read() -> None:
    text = '{"a":' * (MAX_DEPTH - 1) + "{}" + "}" * (MAX_DEPTH - 1)
    assert json.dumps(parse_arguments(text), separators=(",", ":")) == text
    with pytest.raises(InvalidArguments):
        parse_arguments(f'{{"a":{text}}}')


@given(JSON)
def test_any_json_text_is_an_object_or_a_sentence(value: Any) -> None:
    text = json.dumps(value)
    if isinstance(value, dict):
        assert parse_arguments(text) == value
    elif value is None:
        assert parse_arguments(text) == {}
    else:
        with pytest.raises(InvalidArguments):
            parse_arguments(text)


@given(st.text() | JSON | st.binary())
def test_nothing_else_is_raised(value: Any) -> None:
    with contextlib.suppress(InvalidArguments):
        json.dumps(parse_arguments(value), ensure_ascii=False, allow_nan=False).encode()
