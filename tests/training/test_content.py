"""Tool results as the text of a tool message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.training.content import NO_OUTPUT, cut, is_error, result_text
from tests.training.strategies import JSON


def mcp(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"content": list(blocks), "structured_content": None, "meta": None, "is_error": False, **more}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ("plain", "plain"),
        ({"a": 1, "ü": None}, '{"a": 1, "ü": null}'),  # case 29, as are the next
        ([1], "[1]"),
        (None, NO_OUTPUT),
        (3.5, "3.5"),
        (True, "true"),
        (b"\xff", "\ufffd"),
        ("", NO_OUTPUT),
        ({"a": float("nan"), "b": [float("inf")]}, '{"a": null, "b": [null]}'),
        (mcp(text("one"), text("two")), "one\ntwo"),
        (mcp(text("one"), structured_content={"a": 1}, data="one"), "one"),
        (mcp(structured_content={"a": 1}), '{"a": 1}'),
        (mcp(data=[2]), "[2]"),
        (mcp(), NO_OUTPUT),
        (mcp(text("")), NO_OUTPUT),
        (mcp({"type": "image", "data": "AAAA", "mimeType": "image/png"}), "[image: image/png]"),
        (mcp({"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}), "inside"),
        (mcp({"type": "resource_link", "uri": "file:///x"}), "[resource_link: file:///x]"),
        (mcp(7), "7"),
        ("half \ud83d a pair", "half ? a pair"),
    ],
)
def test_results_become_text(result: Any, shown: str) -> None:
    assert result_text(result) == shown


@given(JSON | st.binary())
def test_every_result_becomes_non_empty_text(result: Any) -> None:
    shown = result_text(result)
    assert isinstance(shown, str)
    assert shown.encode()


def test_long_results_lose_their_middle_and_say_so() -> None:
    """Case 30."""
    long = "head" + "x" * 20_000_000 + "tail"
    shown = cut(long, 1000)
    assert len(shown) <= 1000
    assert shown.startswith("headxxx")
    assert shown.endswith("xxxtail")
    assert "20000008 characters" in shown
    assert cut("x" * 1000, 1000) == "x" * 1000


@given(st.text(max_size=400), st.integers(1, 300))
def test_a_cut_text_is_not_empty_and_fits_unless_its_note_does_not(value: str, limit: int) -> None:
    shown = cut(value, limit)
    assert shown == value or len(shown) <= max(limit, 100)


@pytest.mark.parametrize(
    ("result", "failed"), [(mcp(text("x")), False), (mcp(is_error=True), True), ({"isError": True}, True), ("x", False)]
)
def test_mcp_results_say_that_their_tool_failed(result: Any, failed: bool) -> None:
    """Case 33."""
    assert is_error(result) is failed
