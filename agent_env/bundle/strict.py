"""JSON and TOML, read strictly: what two readers could understand differently is refused, with its place.

Python's own JSON reader takes NaN, drops all but the last of equal keys, turns 1e999 into infinity and accepts lone
surrogates, which no UTF-8 file can hold. Here each is a flaw with a path such as `[2].args.day`.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["MAX_DEPTH", "MAX_FILE_BYTES", "Flaw", "Malformed", "decode", "json_path", "read_json", "read_toml"]

MAX_DEPTH = 64
"""How deep arrays and objects may nest."""
MAX_FILE_BYTES = 8 * 1024 * 1024
"""The largest config file, task file or line of a `.jsonl` file, in bytes."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOML_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")


class Flaw(NamedTuple):
    place: str
    what: str
    fix: str


class Malformed(ValueError):
    """The text can't be read; `flaws` says where and why, at least once."""

    def __init__(self, *flaws: Flaw) -> None:
        self.flaws = flaws
        super().__init__("; ".join(f"{flaw.place}: {flaw.what}" if flaw.place else flaw.what for flaw in flaws))


class _Repeating(dict[str, Any]):
    """An object that gives a key more than once."""

    repeated: tuple[str, ...] = ()


class _NotFinite(NamedTuple):
    text: str


def decode(data: bytes, *, bom: bool = False) -> str:
    """UTF-8 bytes as text; with `bom`, a leading byte order mark is dropped. Raises Malformed."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise Malformed(Flaw(f"line {line}", what, "save the file as UTF-8")) from None
    if not text.startswith("\ufeff"):
        return text
    if not bom:
        raise Malformed(Flaw("line 1", "it starts with a byte order mark", "save the file as UTF-8 without one"))
    return text[1:]


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises Malformed with every repeated key, non-finite number and lone surrogate, or
    with the first syntax error."""
    marked = False

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal marked
        value = dict(items)
        if len(value) == len(items):
            return value
        marked = True
        keys = [key for key, _ in items]
        repeating = _Repeating(value)
        repeating.repeated = tuple(key for key in value if keys.count(key) > 1)
        return repeating

    def number(digits: str) -> float | _NotFinite:
        nonlocal marked
        value = float(digits)
        if math.isfinite(value):
            return value
        marked = True
        return _NotFinite(digits)

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=number, parse_float=number)
    except json.JSONDecodeError as error:
        what = f"not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}"
        raise Malformed(Flaw(f"line {error.lineno} column {error.colno}", what, "write strict JSON")) from None
    except RecursionError:
        raise Malformed(_too_deep(())) from None
    except ValueError:  # CPython won't convert an integer of more than 4,300 digits
        raise Malformed(Flaw("", "an integer has more than 4300 digits", "write a smaller number")) from None
    # Only a text that could hold a flaw is walked; most of a large bundle's never are.
    if marked or text.count("[") + text.count("{") > MAX_DEPTH or _SURROGATE.search(text):
        flaws = tuple(_flaws(value, ()))
        if flaws:
            raise Malformed(*flaws)
    return value


def _flaws(value: Any, path: tuple[str | int, ...]) -> Iterator[Flaw]:
    if isinstance(value, _NotFinite):
        yield Flaw(json_path(path), f"{value.text} is not a number that JSON has", "write a finite number")
    elif isinstance(value, str):
        if not _encodable(value):
            yield Flaw(json_path(path), "its text has half a surrogate pair", r"write both halves, or the character")
    elif len(path) >= MAX_DEPTH and isinstance(value, list | dict):
        yield _too_deep(path[:4])
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _flaws(item, (*path, index))
    elif isinstance(value, dict):
        for key in value.repeated if isinstance(value, _Repeating) else ():
            yield Flaw(json_path((*path, key)), f"the key {key!r} is given more than once", "give it once")
        for key, item in value.items():
            if not _encodable(key):
                yield Flaw(json_path(path), f"the key {key!r} has half a surrogate pair", "write both halves")
            yield from _flaws(item, (*path, key))


def _too_deep(path: tuple[str | int, ...]) -> Flaw:
    return Flaw(json_path(path), f"nested more than {MAX_DEPTH} deep", "nest less")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_path(path: tuple[str | int, ...]) -> str:
    """`(2, "args", "day")` as `[2].args.day`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def read_toml(data: bytes) -> dict[str, Any]:
    """A TOML file's tables; a byte order mark is accepted. Raises Malformed."""
    try:
        return tomllib.loads(decode(data, bom=True))
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.search(str(error))
        place = f"line {found['line']} column {found['column']}" if found and found["line"] else "the end"
        reason = _TOML_PLACE.sub("", str(error))
        what = f"not valid TOML: {reason[:1].lower()}{reason[1:]}"
        raise Malformed(Flaw(place, what, "write valid TOML, each key once")) from None
    except RecursionError:
        raise Malformed(_too_deep(())) from None
