"""Strict JSON: what comes in means one thing only, and what goes out can be read by anyone."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["dumps", "loads"]


def loads(text: bytes | str) -> Any:
    """Parse JSON; bytes are UTF-8.

    Raises ValueError for all that parsers read differently (duplicate keys, NaN, Infinity, numbers too large for a
    float) and for what exhausts a parser (nesting that is too deep, integers of thousands of digits).
    """
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8; half of a surrogate pair, which UTF-8 can't hold, becomes `?`.

    Raises TypeError or ValueError for what JSON can't hold, such as NaN or an object of some class.
    """
    try:
        return _ENCODER.encode(value).encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _float(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{digits[:20]} is too large a number")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
