from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.env.schema import Field, Invalid, type_of


class Point(TypedDict):
    x: int
    label: NotRequired[Annotated[str, "its name"]]


@dataclasses.dataclass(frozen=True)
class Box:
    size: int
    tags: list[str] = dataclasses.field(default_factory=list)


class Chain(TypedDict):
    next: Optional[Chain]  # noqa: UP045  # the name isn't defined yet when the class body runs


SCHEMAS = [
    (bool, {"type": "boolean"}),
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (str, {"type": "string"}),
    (None, {"type": "null"}),
    (Any, {}),
    (list, {"type": "array", "items": {}}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
    ),
    (dict, {"type": "object", "additionalProperties": True}),
    (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
    (Literal[1, "b"], {"enum": [1, "b"]}),
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (Annotated[int, "hours"], {"type": "integer", "description": "hours"}),
    (
        Annotated[int, Field("hours", minimum=1, maximum=4)],
        {"type": "integer", "description": "hours", "minimum": 1, "maximum": 4},
    ),
    (
        Annotated[list[int], Field(min_length=1, max_length=2)],
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
    ),
    (
        Annotated[str, Field(min_length=1, max_length=2, pattern="^a")],
        {"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^a"},
    ),
    (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "label": {"type": "string", "description": "its name"}},
            "required": ["x"],
            "additionalProperties": False,
        },
    ),
    (
        Box,
        {
            "type": "object",
            "properties": {"size": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["size"],
            "additionalProperties": False,
        },
    ),
]


@pytest.mark.parametrize(("annotation", "schema"), SCHEMAS, ids=[str(annotation) for annotation, _ in SCHEMAS])
def test_annotations_become_schemas(annotation: Any, schema: dict[str, Any]) -> None:
    assert type_of(annotation).schema == schema


TAKEN = [
    (int, 3, 3),
    (float, 3, 3),
    (float, 2.5, 2.5),
    (str, '{"a":1}', '{"a":1}'),
    (None, None, None),
    (list[int], [], []),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple[int, str], [1, "a"], (1, "a")),
    (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
    (Literal[1, True], True, True),
    (int | str, "1", "1"),
    (Optional[int], None, None),  # noqa: UP045  # both spellings are taken
    (Point, {"x": 1, "label": "a"}, {"x": 1, "label": "a"}),
    (Box, {"size": 1}, Box(1)),
    (list[Box], [{"size": 1, "tags": ["a"]}], [Box(1, ["a"])]),
    (Annotated[int, Field(minimum=1, maximum=2)], 2, 2),
    (Annotated[str, Field(pattern="b")], "abc", "abc"),
]


@pytest.mark.parametrize(("annotation", "value", "got"), TAKEN)
def test_a_value_that_fits_is_taken_unchanged(annotation: Any, value: Any, got: Any) -> None:
    taken = type_of(annotation).check(value, "x")
    assert taken == got
    assert type(taken) is type(got)


REFUSED = [
    (int, True, "x: expected an integer, got the boolean true"),
    (int, 1.0, "x: expected an integer, got the number 1.0"),
    (int, "1", 'x: expected an integer, got the string "1"'),
    (int, None, "x: expected an integer, got null"),
    (float, False, "x: expected a number, got the boolean false"),
    (bool, 0, "x: expected a boolean, got the integer 0"),
    (str, ["a"], "x: expected a string, got an array of 1 item"),
    (str, {}, "x: expected a string, got an object"),
    (None, 0, "x: expected null, got the integer 0"),
    (list[int], "[0, 0]", 'x: expected an array (each item an integer), got the string "[0, 0]"'),
    (list[int], [0, True], "x[1]: expected an integer, got the boolean true"),
    (list[int], [0, "1"], 'x[1]: expected an integer, got the string "1"'),
    (list[list[int]], [[0], [0, 1.0]], "x[1][1]: expected an integer, got the number 1.0"),
    (tuple[int, str], [1], "x: expected an array of 2 items, got an array of 1 item"),
    (dict[str, int], {"a": None}, 'x["a"]: expected an integer, got null'),
    (dict[str, int], [], "x: expected an object, got an array of 0 items"),
    (Literal["a", "b"], "c", 'x: expected one of "a", "b", got the string "c"'),
    (Literal[1], True, "x: expected one of 1, got the boolean true"),
    (int | None, "1", 'x: expected an integer or null, got the string "1"'),
    (list[int] | None, ["1"], 'x[0]: expected an integer, got the string "1"'),
    (Point, {"x": 1, "y": 2}, 'x: unknown key "y" (keys: x, label)'),
    (Point, {"label": "a"}, "x: missing key x"),
    (Point, {"x": "1"}, 'x.x: expected an integer, got the string "1"'),
    (Box, {"size": 1, "tags": [1]}, "x.tags[0]: expected a string, got the integer 1"),
    (Annotated[int, Field(minimum=1)], 0, "x: 0 is less than 1"),
    (Annotated[int, Field(maximum=1)], 2, "x: 2 is more than 1"),
    (Annotated[list[int], Field(min_length=24)], [0] * 23, "x: 23 items, fewer than 24"),
    (Annotated[list[int], Field(max_length=24)], [0] * 25, "x: 25 items, more than 24"),
    (Annotated[str, Field(max_length=1)], "ab", "x: 2 characters, more than 1"),
    (Annotated[str, Field(pattern="^b")], "ab", 'x: "ab" does not match ^b'),
    (str, [1] * 3 + ["x" * 100], "x: expected a string, got an array of 4 items"),
    (int, "x" * 100, f'x: expected an integer, got the string "{"x" * 36}...'),
]


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_by_place_and_kind(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        type_of(annotation).check(value, "x")
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (object, "object is not a type"),
        (set[int], "set"),
        (dict[int, str], "dict"),
        (bytes, "bytes"),
        (Chain, "Chain holds itself"),
        (Annotated[int, Field(min_length=1)], "min_length"),
        (Annotated[str, Field(minimum=1)], "minimum"),
        (Annotated[int | None, Field(minimum=1)], "put it on the type that it bounds"),
        (Annotated[int, Field(pattern="a")], "pattern"),
    ],
)
def test_an_annotation_that_json_cannot_have_is_a_type_error(annotation: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        type_of(annotation)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
OF_JSON = {int: int, float: (int, float), str: str, bool: bool, list: list, dict: dict}


@given(value=JSON, kind=st.sampled_from(sorted(OF_JSON, key=str)))
def test_a_plain_type_takes_exactly_its_own_json_type(value: Any, kind: type) -> None:
    fits = isinstance(value, OF_JSON[kind]) and (kind is bool or not isinstance(value, bool))
    try:
        assert type_of(kind).check(value, "x") is value or kind in (list, dict)
        assert fits
    except Invalid:
        assert not fits


@given(value=JSON)
def test_whatever_comes_a_check_answers_or_refuses_and_never_breaks(value: Any) -> None:
    for annotation, _ in SCHEMAS:
        problem = "x"
        try:
            type_of(annotation).check(value, "x")
        except Invalid as refused:
            problem = str(refused)
        assert problem.startswith("x")
