from __future__ import annotations

import functools
from typing import Annotated, Any

import pytest

from agent_env.env.arguments import arguments_of
from agent_env.env.schema import Invalid


class Methods:
    def good(self, a: int, b: Annotated[str, "two"] = "x", *, c: list[int] | None = None) -> None: ...
    def untyped(self, a) -> None: ...  # type: ignore[no-untyped-def]
    def starred(self, *a: int) -> None: ...
    def double_starred(self, **a: int) -> None: ...
    def by_position(self, a: int, /) -> None: ...
    def odd_default(self, a: Any = object()) -> None: ...  # noqa: B008
    def odd_type(self, a: set[int]) -> None: ...


def test_a_method_becomes_a_schema_of_its_arguments() -> None:
    assert arguments_of(Methods.good).schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "description": "two", "default": "x"},
            "c": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}], "default": None},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert arguments_of(Methods.odd_default).schema["properties"] == {"a": {}}


def test_of_many_problems_the_first_are_told() -> None:
    with pytest.raises(Invalid) as refused:
        arguments_of(Methods.good).bind({f"x{i}": 0 for i in range(1000)})
    assert str(refused.value).endswith('unknown argument "x4" (arguments: a, b, c); and 996 more')


def test_a_decorated_method_keeps_its_own_parameters() -> None:
    @functools.wraps(Methods.good)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return Methods.good(*args, **kwargs)

    assert arguments_of(wrapper).schema == arguments_of(Methods.good).schema


@pytest.mark.parametrize("name", ["untyped", "starred", "double_starred", "by_position", "odd_type"])
def test_a_method_that_json_cannot_call_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"Methods.{name}: parameter a"):
        arguments_of(getattr(Methods, name))


def test_binding_names_every_problem_and_leaves_defaults_to_python() -> None:
    arguments = arguments_of(Methods.good)
    assert arguments.bind({"a": 1}) == {"a": 1}
    with pytest.raises(Invalid) as refused:
        arguments.bind({"b": 1, "d": 2})
    assert str(refused.value) == (
        'unknown argument "d" (arguments: a, b, c); missing argument a: expected an integer; '
        "argument b: expected a string, got the integer 1"
    )
