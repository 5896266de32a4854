"""Forms made from a tool's schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent_env.authoring.forms import BadInput, fill, parse, resolve, shown


def filled(schema: dict[str, Any], *lines: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """The arguments, what was asked, and what was said of bad lines."""
    asked: list[str] = []
    said: list[str] = []
    given: Iterator[str] = iter(lines)

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return next(given)

    return fill(schema, ask, said.append), asked, said


def test_each_property_is_asked_for_by_name_type_and_description() -> None:
    schema = {
        "properties": {
            "count": {"type": "integer", "minimum": 1, "description": "how many"},
            "note": {"type": "string"},
        },
        "required": ["count"],
    }
    arguments, asked, said = filled(schema, "3", "")
    assert arguments == {"count": 3}
    assert asked == ["  count (integer, 1 to ...; how many): ", "  note (string, optional): "]
    assert said == []


def test_a_bad_line_is_explained_and_asked_again() -> None:
    schema = {"properties": {"count": {"type": "integer"}}, "required": ["count"]}
    arguments, asked, said = filled(schema, "many", "1.5", "true", "2")
    assert arguments == {"count": 2}
    assert len(asked) == 4
    assert said == ["integer, not 'many'", "integer, not '1.5'", "integer, not 'true'"]


@pytest.mark.parametrize(
    ("schema", "line", "value"),
    [
        ({"type": "string"}, "12", "12"),
        ({"type": "string"}, " kept as it is ", " kept as it is "),
        ({"type": "number"}, "2", 2),
        ({"type": "boolean"}, "true", True),
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": {"b": 1}}', {"a": {"b": 1}}),
        ({"enum": ["low", "high"]}, "high", "high"),
        ({"enum": [1, 2]}, "2", 2),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "word", "word"),
        ({"type": ["integer", "string"]}, "7", 7),
        ({}, '{"any": 1}', {"any": 1}),
        ({}, "words", "words"),
    ],
)
def test_a_line_is_read_by_the_fields_type(schema: dict[str, Any], line: str, value: Any) -> None:
    found = parse(line, schema)
    assert (found, type(found)) == (value, type(value))


def test_an_empty_line_leaves_an_optional_field_out_and_is_a_required_texts_value() -> None:
    field = {"type": "string"}
    assert filled({"properties": {"a": field, "b": field}, "required": ["a"]}, "", "")[0] == {"a": ""}
    assert filled({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, "", "1")[2] == ["integer, not ''"]


@pytest.mark.parametrize(
    ("schema", "line"),
    [({"enum": ["low"]}, "high"), ({"type": "array"}, "1, 2"), ({"type": "object"}, "[]"), ({"type": "null"}, "0")],
)
def test_what_the_field_does_not_take_is_refused(schema: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput):
        parse(line, schema)


def test_references_into_the_schema_are_followed() -> None:
    root = {"properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}}, "$defs": {"A": {"type": "integer"}}}
    field = resolve(root["properties"]["a"], root)
    assert shown(field) == "integer; mine"
    assert resolve({"$ref": "#/$defs/B"}, root) == {}
