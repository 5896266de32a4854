"""A tool call's arguments: a JSON object, strictly, or a sentence for the model that says what was found instead.

Nothing is repaired: a repaired call is not what the policy sampled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["MAX_DEPTH", "InvalidArguments", "parse_arguments"]

MAX_DEPTH = 100
"""Levels of nesting; deeper arguments are refused, since some decoder on the way would break on them."""


class InvalidArguments(ValueError):
    """The arguments are no JSON object; str() says what they are, for the model to read."""


def parse_arguments(value: Any) -> dict[str, Any]:
    """The object that a call's `arguments` mean.

    Text must be one JSON object: no duplicate keys at any level, no NaN or number out of range, no lone surrogates.
    Missing (None), empty and blank arguments, and the text `null`, mean `{}`. A mapping, from a server that decodes
    them itself, counts as the object it is. Raises InvalidArguments for anything else, and nothing but that.
    """
    if value is None:
        return {}
    if isinstance(value, str):
        if not value.strip():
            return {}
        value = _decode(value)
        if value is None:
            return {}
    if not isinstance(value, Mapping):
        raise InvalidArguments(f"the arguments must be a JSON object, but they are {_kind(value)}")
    arguments = dict(value)
    if _deeper_than(arguments, MAX_DEPTH):
        raise InvalidArguments(f"the arguments are nested more than {MAX_DEPTH} levels deep")
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise InvalidArguments("the arguments hold a lone surrogate, which is not text") from None
    except (TypeError, ValueError) as error:
        raise InvalidArguments(f"the arguments are not JSON: {error}") from None
    return arguments


def _decode(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_float)
    except InvalidArguments:
        raise
    except json.JSONDecodeError as error:
        found = f", at {text[error.pos : error.pos + 20]!r}" if error.pos < len(text) else ", where it ends"
        raise InvalidArguments(
            f"the arguments are not valid JSON: {error.msg} (character {error.pos} of {len(text)}{found})"
        ) from None
    except RecursionError:
        raise InvalidArguments(f"the arguments are nested more than {MAX_DEPTH} levels deep") from None
    except ValueError:  # Python's own limit on the digits of an integer
        raise InvalidArguments("the arguments hold a number with too many digits") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidArguments(f"the arguments have the key {twice[:80]!r} more than once in one object")
    return found


def _refuse(name: str) -> Any:
    raise InvalidArguments(f"the arguments hold {name}, which is not JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise InvalidArguments(f"the arguments hold {digits[:40]}, which is out of range")
    return number


def _deeper_than(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for item in level
            if isinstance(item, (Mapping, list, tuple))
            for child in (item.values() if isinstance(item, Mapping) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, (Mapping, list, tuple)) for item in level)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return f"the boolean {json.dumps(value)}"
    if isinstance(value, str):
        return f"a string: {json.dumps(value[:80])}"
    if isinstance(value, (int, float)):
        return f"the number {value!r:.80}"
    if isinstance(value, (list, tuple)):
        return f"an array of {len(value)}"
    return f"of type {type(value).__name__}"
