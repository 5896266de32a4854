"""JSON step objects, validated into step models, with each error told in the author's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agent_env.bundle.problems import Problems
from agent_env.bundle.steps import STEP_TYPES, BaseStep, Step
from agent_env.bundle.strict import json_path

__all__ = ["Place", "Unplayable", "read_steps"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task's steps are written: a file, and what to say before a path into them (`line 7: steps`)."""

    file: str
    prefix: str = ""

    def at(self, *path: str | int) -> str:
        return f"{self.prefix}{json_path(path)}"


@dataclass(frozen=True, slots=True)
class Unplayable:
    """Why an episode can't play a step that is otherwise well formed."""

    step_id: str
    step_type: str
    why: str


def read_steps(raw: object, place: Place, problems: Problems) -> tuple[list[Step], list[Unplayable]] | None:
    """The steps of a task, and why some can't be played; None, with problems, if they aren't well formed."""
    before = len(problems)
    if not isinstance(raw, list):
        problems.add(place.file, place.at(), f"the steps are {_kind(raw)}", "write a JSON array of step objects")
        return None
    if not raw:
        problems.add(place.file, place.at(), "the task has no steps", "add its steps")
        return None
    steps: list[Step] = []
    unplayable: list[Unplayable] = []
    ids: set[str] = set()
    for index, value in enumerate(raw):
        if not isinstance(value, dict):
            problems.add(place.file, place.at(index), f"the step is {_kind(value)}", "write an object")
            continue
        step_id, step_type = value.get("id"), value.get("type")
        if isinstance(step_id, str) and step_id:
            if step_id in ids:
                fix = "give each step of a task an id of its own"
                problems.add(place.file, place.at(index, "id"), f"the id {step_id!r} is taken by an earlier step", fix)
            ids.add(step_id)
        else:
            _missing(value, "id", place, index, problems)
        if not (isinstance(step_type, str) and step_type):
            _missing(value, "type", place, index, problems)
        elif (model := STEP_TYPES.get(step_type)) is None:
            unplayable.append(Unplayable(str(step_id), step_type, f"steps of type {step_type!r} can't be played"))
        elif isinstance(step_id, str) and step_id and (step := _step(model, value, index, place, problems)):
            steps.append(step)
            if why := step.unplayable():
                unplayable.append(Unplayable(step.id, step_type, why))
    return (steps, unplayable) if len(problems) == before else None


def _step(model: type[BaseStep], value: dict[str, Any], index: int, place: Place, problems: Problems) -> Step | None:
    try:
        return cast(Step, model.model_validate(value))
    except ValidationError as invalid:
        for error in invalid.errors(include_url=False):
            path, found = _path(value, error["loc"])
            what, fix = _words(error, found)
            problems.add(place.file, place.at(index, *path), what, fix)
    return None


def _path(value: Any, location: Sequence[str | int]) -> tuple[list[str | int], Any]:
    """The path in the JSON that an error's location means, which has the tag of each union member too, and the value
    there."""
    path: list[str | int] = []
    for part in location:
        if isinstance(value, dict) and part not in value and value.get("type") == part:
            continue
        path.append(part)
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
    return path, value


_WANTED = {
    "string_type": "a text",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
}


def _words(error: ErrorDetails, found: Any) -> tuple[str, str]:
    """(what, fix) for one of pydantic's errors."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "it is missing", "add it"
    if kind == "value_error":
        what, _, fix = str(context["error"]).partition("; ")
        return what, fix
    if kind in ("string_too_short", "too_short"):
        return "it is empty", "give at least one"
    if kind == "literal_error":
        return f"{_kind(found)} is not one of its values", f"write {context['expected']}"
    if kind == "union_tag_invalid":
        return f"{context['tag']!r} is no type of criterion", f"write one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "its type is missing", "add one"
    if kind in _WANTED:
        return f"it is {_kind(found)}", f"write {_WANTED[kind]}"
    message = error["msg"].removeprefix("Input ")
    return f"{_kind(found)} can't be used", f"it {message[:1].lower()}{message[1:]}"


def _missing(value: dict[str, Any], key: str, place: Place, index: int, problems: Problems) -> None:
    what = f"it is {_kind(value[key])}" if key in value else "it is missing"
    problems.add(place.file, place.at(index, key), what, f"give the step {'an' if key == 'id' else 'a'} {key}, a text")


def _kind(value: object) -> str:
    """A JSON value, named shortly."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:39] + "…") if value else "an empty text"
    return "an array" if isinstance(value, list) else "an object"
