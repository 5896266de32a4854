"""The strict reader: takes what JSON is and nothing more, and never fails with anything but Malformed."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.bundle.strict import MAX_DEPTH, Malformed, decode, json_path, read_json, read_toml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_reads_all_that_json_can_say(value: Any, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.text() | st.text(alphabet='[]{}",:0123456789eE.-+ntrufalsN\\ud8\n '))
def test_any_text_is_read_as_json_does_or_is_malformed(text: str) -> None:
    try:
        value = read_json(text)
    except Malformed:
        return
    assert json.loads(text) == value
    json.dumps(value, allow_nan=False).encode()


@given(st.binary())
def test_any_bytes_are_toml_or_malformed(data: bytes) -> None:
    with contextlib.suppress(Malformed):
        assert isinstance(read_toml(data), dict)


@given(VALUES, st.lists(st.text(), min_size=1, max_size=4), st.text())
def test_a_repeated_key_is_told_with_its_path(value: Any, path: list[str], key: str) -> None:
    name, inner = json.dumps(key), json.dumps(value)
    text = f"{{{name}: {inner}, {name}: {inner}}}"
    for part in reversed(path):
        text = f"{{{json.dumps(part)}: {text}}}"
    with pytest.raises(Malformed) as raised:
        read_json(text)
    flaw = raised.value.flaws[0]
    assert flaw.place == json_path((*path, key))
    assert "more than once" in flaw.what


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_not_finite_is_told_with_its_path(number: str) -> None:
    with pytest.raises(Malformed) as raised:
        read_json(f'{{"a": [0, {{"b": {number}}}]}}')
    assert [flaw.place for flaw in raised.value.flaws] == ["a[1].b"]
    assert number in raised.value.flaws[0].what


def test_all_flaws_of_a_text_are_told() -> None:
    with pytest.raises(Malformed) as raised:
        read_json(r'[{"a": 1, "a": 2}, NaN, "\udfff", {"\ud800": 1}]')
    assert [flaw.place for flaw in raised.value.flaws] == ["[0].a", "[1]", "[2]", "[3]"]


def test_nesting_has_a_limit() -> None:
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 1000, 200_000):
        with pytest.raises(Malformed, match=f"nested more than {MAX_DEPTH} deep"):
            read_json("[" * depth + "]" * depth)


def test_both_halves_of_a_surrogate_pair_are_one_character() -> None:
    assert read_json(r'"\ud83d\ude00"') == "\U0001f600"


def test_line_separators_inside_texts_are_kept() -> None:
    assert read_json('"a\u2028b\u0085c"') == "a\u2028b\u0085c"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"a = 1\na = 2", "the end"),
        (b"a = 1\na = 2\n", "line 2 column 6"),
        (b"[t]\n[t]\n", "line 2 column 3"),
        (b"a = [1\n", "the end"),
        (b"\n\xff", "line 2"),
        (b"a = " + b"[" * 100_000, ""),
    ],
)
def test_bad_toml_is_told_with_its_place(data: bytes, place: str) -> None:
    with pytest.raises(Malformed) as raised:
        read_toml(data)
    assert raised.value.flaws[0].place == place


def test_a_byte_order_mark_is_taken_in_toml_only() -> None:
    assert read_toml(b"\xef\xbb\xbfa = 1") == {"a": 1}
    with pytest.raises(Malformed, match="byte order mark"):
        decode(b"\xef\xbb\xbf{}")
