"""Python annotations as JSON Schema, and the check of a value against one.

| annotation | takes | the method gets |
| --- | --- | --- |
| `bool`, `str`, `None` | that, and nothing else | it |
| `int` | a number written without point or exponent (1.0 and true are refused) | it |
| `float` | any number (true is refused) | it: an int stays an int |
| `list[T]`, `tuple[T, ...]`, `tuple[A, B]` | an array | a list or a tuple |
| `dict[str, T]` | an object | a dict |
| `Literal[...]` | one of its values, of the same type | it |
| `A | B`, `Optional[A]` | what A or B takes; the first that does | what that one gives |
| a `TypedDict`, a dataclass | an object with these keys, no other | a dict; an instance |
| `Any` | anything | it |

`Annotated[T, "description"]` and `Annotated[T, Field(...)]` add what a model should know. Nothing is ever converted
from one JSON type to another: a quoted list is a string, and `"1"` is no number.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Literal, Union

from agent_env.env import jsontext

__all__ = ["Field", "Invalid", "Type", "object_schema", "show", "type_of"]


class Invalid(ValueError):
    """A value that its annotation doesn't take. str() names the place and says what was found there."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)


@dataclass(frozen=True, slots=True)
class Field:
    """What `Annotated` may say of an argument. Bounds are inclusive; lengths count characters or items."""

    description: str = ""
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    """A regular expression that must be found somewhere in the string."""


@dataclass(frozen=True, slots=True)
class Type:
    """A compiled annotation."""

    schema: dict[str, Any]
    expected: str
    """In words with an article, for messages: `an integer`."""
    check: Callable[[Any, str], Any]
    """(value, where it stands) -> what the method gets. Raises Invalid."""


def type_of(annotation: Any, _within: tuple[Any, ...] = ()) -> Type:
    """Compile an annotation. Raises TypeError, naming it, if it isn't in the table above."""
    if annotation in _within:
        raise TypeError(f"{_name(annotation)} holds itself: recursive types are not supported")
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Required, typing.NotRequired):
        return type_of(args[0], _within)
    if origin is typing.Annotated:
        return _annotated(type_of(args[0], _within), args[1:])
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin is Literal:
        return _literal(args)
    if origin in (Union, types.UnionType):
        return _union([type_of(arg, _within) for arg in args])
    if annotation is list or origin is list:
        return _list(type_of(args[0] if args else Any, _within), list)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _list(type_of(args[0], _within), tuple)
    if origin is tuple:
        return _tuple([type_of(arg, _within) for arg in args])
    if annotation is dict or (origin is dict and args[0] is str):
        return _dict(type_of(args[1] if args else Any, _within))
    if typing.is_typeddict(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        parts = {name: type_of(hint, (*_within, annotation)) for name, hint in hints.items()}
        return _record(parts, [name for name in hints if _is_required(annotation, name, hints[name])], dict)
    if isinstance(annotation, type) and is_dataclass(annotation):
        hints = typing.get_type_hints(annotation, include_extras=True)
        given = [field for field in fields(annotation) if field.init]
        parts = {field.name: type_of(hints[field.name], (*_within, annotation)) for field in given}
        required = [field.name for field in given if field.default is MISSING and field.default_factory is MISSING]
        return _record(parts, required, annotation)
    raise TypeError(f"{_name(annotation)} is not a type that JSON arguments can have")


# ---- each kind -------------------------------------------------------------------------------------------------------


def _plain(kind: str, expected: str, accepts: tuple[type, ...]) -> Type:
    def check(value: Any, where: str) -> Any:
        if type(value) not in accepts:  # not isinstance: to Python, but not to JSON, a bool is an int
            raise Invalid(where, f"expected {expected}, got {_found(value)}")
        return value

    return Type({"type": kind}, expected, check)


_PLAIN: dict[Any, Type] = {
    Any: Type({}, "any value", lambda value, where: value),
    None: _plain("null", "null", (type(None),)),
    type(None): _plain("null", "null", (type(None),)),
    bool: _plain("boolean", "a boolean", (bool,)),
    int: _plain("integer", "an integer", (int,)),
    float: _plain("number", "a number", (int, float)),
    str: _plain("string", "a string", (str,)),
}


def _literal(values: tuple[Any, ...]) -> Type:
    expected = "one of " + ", ".join(show(value) for value in values)
    schema: dict[str, Any] = {"enum": list(values)}
    if all(type(value) is str for value in values):
        schema["type"] = "string"

    def check(value: Any, where: str) -> Any:
        if not any(type(value) is type(choice) and value == choice for choice in values):
            raise Invalid(where, f"expected {expected}, got {_found(value)}")
        return value

    return Type(schema, expected, check)


def _union(choices: list[Type]) -> Type:
    expected = " or ".join(choice.expected for choice in choices)

    def check(value: Any, where: str) -> Any:
        problems = []
        for choice in choices:
            try:
                return choice.check(value, where)
            except Invalid as problem:
                problems.append(str(problem))
        # A problem deeper inside the value says more than "expected a list or null".
        inner = [problem for problem in problems if not problem.startswith(f"{where}: expected")]
        raise Invalid("", inner[0]) if inner else Invalid(where, f"expected {expected}, got {_found(value)}")

    return Type({"anyOf": [choice.schema for choice in choices]}, expected, check)


def _list(item: Type, make: type[list[Any]] | type[tuple[Any, ...]]) -> Type:
    expected = "an array" if item.expected == "any value" else f"an array (each item {item.expected})"

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise Invalid(where, f"expected {expected}, got {_found(value)}")
        return make(item.check(one, f"{where}[{i}]") for i, one in enumerate(value))

    return Type({"type": "array", "items": item.schema}, expected, check)


def _tuple(items: list[Type]) -> Type:
    expected = f"an array of {len(items)} items"

    def check(value: Any, where: str) -> Any:
        if not isinstance(value, list) or len(value) != len(items):
            raise Invalid(where, f"expected {expected}, got {_found(value)}")
        return tuple(item.check(one, f"{where}[{i}]") for i, (item, one) in enumerate(zip(items, value, strict=True)))

    size = len(items)
    schema = {"type": "array", "prefixItems": [item.schema for item in items], "minItems": size, "maxItems": size}
    return Type(schema, expected, check)


def _dict(item: Type) -> Type:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise Invalid(where, f"expected an object, got {_found(value)}")
        return {key: item.check(one, f"{where}[{show(key)}]") for key, one in value.items()}

    return Type({"type": "object", "additionalProperties": item.schema or True}, "an object", check)


def _record(parts: dict[str, Type], required: list[str], make: Callable[..., Any]) -> Type:
    def check(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise Invalid(where, f"expected an object, got {_found(value)}")
        for key in value:
            if key not in parts:
                raise Invalid(where, f"unknown key {show(key)} (keys: {', '.join(parts) or 'none'})")
        for name in required:
            if name not in value:
                raise Invalid(where, f"missing key {name}")
        return make(**{key: parts[key].check(one, f"{where}.{key}") for key, one in value.items()})

    return Type(object_schema({name: part.schema for name, part in parts.items()}, required), "an object", check)


def _is_required(typed_dict: Any, name: str, hint: Any) -> bool:
    """`__required_keys__` alone is wrong where annotations are strings (`from __future__ import annotations`)."""
    origin = typing.get_origin(hint)
    return origin is typing.Required or (origin is not typing.NotRequired and name in typed_dict.__required_keys__)


def _annotated(inner: Type, notes: tuple[Any, ...]) -> Type:
    for note in notes:
        if isinstance(note, str):
            inner = Type({**inner.schema, "description": note}, inner.expected, inner.check)
        elif isinstance(note, Field):
            inner = _bounded(inner, note)
    return inner


def _bounded(inner: Type, field: Field) -> Type:
    kind = inner.schema.get("type")
    length = {"array": ("minItems", "maxItems"), "string": ("minLength", "maxLength")}.get(str(kind))
    schema = dict(inner.schema)
    if field.description:
        schema["description"] = field.description
    for bound, key, applies in (
        (field.minimum, "minimum", kind in ("integer", "number")),
        (field.maximum, "maximum", kind in ("integer", "number")),
        (field.min_length, length[0] if length else "min_length", length is not None),
        (field.max_length, length[1] if length else "max_length", length is not None),
        (field.pattern, "pattern", kind == "string"),
    ):
        if bound is not None and not applies:
            raise TypeError(f"Field({key}) does not apply to {inner.expected}; put it on the type that it bounds")
        if bound is not None:
            schema[key] = bound
    unit = "items" if kind == "array" else "characters"

    def check(value: Any, where: str) -> Any:
        value = inner.check(value, where)
        if field.minimum is not None and value < field.minimum:
            raise Invalid(where, f"{show(value)} is less than {field.minimum}")
        if field.maximum is not None and value > field.maximum:
            raise Invalid(where, f"{show(value)} is more than {field.maximum}")
        if field.min_length is not None and len(value) < field.min_length:
            raise Invalid(where, f"{len(value)} {unit}, fewer than {field.min_length}")
        if field.max_length is not None and len(value) > field.max_length:
            raise Invalid(where, f"{len(value)} {unit}, more than {field.max_length}")
        if field.pattern is not None and not re.search(field.pattern, value):
            raise Invalid(where, f"{show(value)} does not match {field.pattern}")
        return value

    return Type(schema, inner.expected, check)


# ---- words -----------------------------------------------------------------------------------------------------------


def object_schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """Of an object with these keys and no other."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    return {**schema, "additionalProperties": False}


_NAMES = {bool: "the boolean", int: "the integer", float: "the number", str: "the string", dict: "an object"}


def _found(value: Any) -> str:
    """What a value is, and what it says if it's short: `the string "1"`, `an array of 3 items`."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"an array of {len(value)} item{'s' if len(value) != 1 else ''}"
    name = _NAMES.get(type(value), type(value).__name__)
    return name if isinstance(value, dict) else f"{name} {show(value)}"


def show(value: Any) -> str:
    """JSON, cut short, for a message."""
    try:
        text = jsontext.dumps(value).decode()
    except (TypeError, ValueError):
        text = repr(type(value))
    return text if len(text) <= 40 else text[:37] + "..."


def _name(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
