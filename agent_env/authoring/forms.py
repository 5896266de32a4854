"""A tool's arguments asked for one by one, by its JSON Schema. What is typed is read by the schema's type."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Ask", "BadInput", "fill", "parse", "shown"]

Ask = Callable[[str], str]
"""Shows a prompt and gives the line that was typed. Raises EOFError at the end of input."""

NOTHING = object()


class BadInput(ValueError):
    """A line that the field doesn't take; str() says what it takes."""


def fill(schema: Mapping[str, Any], ask: Ask, say: Callable[[str], None]) -> dict[str, Any]:
    """Ask for each property; an optional one may be left empty. A bad line is explained with `say`, and asked again."""
    required = schema.get("required") or ()
    found: dict[str, Any] = {}
    for name, field in (schema.get("properties") or {}).items():
        resolved = resolve(field, schema)
        optional = name not in required
        while True:
            try:
                value = parse(
                    ask(f"  {name} ({shown(resolved)}{', optional' if optional else ''}): "), resolved, optional
                )
                break
            except BadInput as error:
                say(str(error))
        if value is not NOTHING:
            found[name] = value
    return found


def parse(line: str, schema: Mapping[str, Any], optional: bool = False) -> Any:
    """The value that a typed line means; NOTHING for an empty line of an optional field. Raises BadInput."""
    text = line.strip()
    if optional and not text:
        return NOTHING
    kinds = kinds_of(schema)
    if schema.get("enum"):
        for value in schema["enum"]:
            if text in (str(value), json.dumps(value)):
                return value
        raise BadInput(f"one of {', '.join(map(str, schema['enum']))}, not {text!r}")
    if kinds == {"string"}:
        return line
    try:
        value = json.loads(text)
    except ValueError:
        if "string" in kinds or not kinds:
            return line
        raise BadInput(f"{_type(schema)}, not {text!r}") from None
    if kinds and not any(_is(value, kind) for kind in kinds):
        if "string" in kinds:
            return line
        raise BadInput(f"{_type(schema)}, not {text!r}")
    return value


def shown(schema: Mapping[str, Any]) -> str:
    """A field's type in a few words, with its description."""
    words = _type(schema)
    return f"{words}; {schema['description']}" if schema.get("description") else words


def _type(schema: Mapping[str, Any]) -> str:
    kinds = kinds_of(schema)
    words = " | ".join(map(str, schema["enum"])) if schema.get("enum") else " or ".join(sorted(kinds)) or "anything"
    if kinds & {"array", "object"}:
        words += " as JSON"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        words += f", {low if low is not None else '...'} to {high if high is not None else '...'}"
    return words


def kinds_of(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema takes; empty: any."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return set(kind)
    parts = [
        kinds_of(part) for key in ("anyOf", "oneOf") for part in schema.get(key) or () if isinstance(part, Mapping)
    ]
    return set().union(*parts) if parts and all(parts) else set()


def resolve(field: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema, its `$ref` into the tool's own schema followed."""
    if not isinstance(field, Mapping):
        return {}
    reference = field.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return field
    found: Any = root
    for part in reference[2:].split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return {**found, **{k: v for k, v in field.items() if k != "$ref"}} if isinstance(found, Mapping) else {}


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    types: dict[str, tuple[type, ...]] = {
        "integer": (int,),
        "number": (int, float),
        "string": (str,),
        "array": (list,),
        "object": (dict,),
        "null": (type(None),),
    }
    return isinstance(value, types.get(kind, ()))
