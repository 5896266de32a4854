from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.env import jsontext


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"a":1,"a":2}', "duplicate key 'a'"),
        (b'[{"b":{"a":1,"a":1}}]', "duplicate key 'a'"),
        (b"NaN", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"1e999", "too large"),
        (b"[" * 200_000, "nested"),
        (b"9" * 5000, "digits"),
        (b"\xff", "utf-8"),
        (b"\xef\xbb\xbf{}", "Expecting value|BOM"),
        (b"{} {}", "Extra data"),
        (b"", "Expecting value"),
    ],
)
def test_text_that_parsers_read_differently_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        jsontext.loads(text)


def test_half_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert jsontext.dumps(jsontext.loads(rb'"a\ud800b"')) == b'"a?b"'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_what_json_cannot_hold_is_not_written(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        jsontext.dumps(value)


def test_a_value_that_holds_itself_or_is_too_deep_is_not_written() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    looped: list[Any] = []
    looped.append(looped)
    for value in (deep, looped):
        with pytest.raises(ValueError, match=r"nested|Circular"):
            jsontext.dumps(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_written_reads_back_as_it_was(value: Any) -> None:
    assert jsontext.loads(jsontext.dumps(value)) == value
