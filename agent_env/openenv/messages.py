"""JSON as it crosses the wire, and the frames that the server sends.

What goes out is strict: valid Unicode, no NaN (null instead), at most MAX_MESSAGE_BYTES. What comes in may be any
text: `parse` answers it with a value or a ValueError that says what is wrong with it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_env.openenv.protocol import MAX_MESSAGE_BYTES

__all__ = [
    "Observation",
    "Unsendable",
    "byte_length",
    "encode",
    "error_frame",
    "frame",
    "observation_body",
    "observation_frame",
    "parse",
]

_SURROGATE = re.compile("[\ud800-\udfff]")


class Unsendable(Exception):
    """A value that can't go out: too big, too deep, or not JSON. Says which."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A reset's or step's answer, before it has a form."""

    body: Mapping[str, Any] = field(default_factory=dict)
    """What `observation` holds beside `metadata`."""
    reward: float | None = None
    done: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for anything else: NaN, numbers out of range, endless nesting."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode(value: Any, limit: int = MAX_MESSAGE_BYTES) -> str:
    """JSON text of at most `limit` bytes of UTF-8: NaN and infinities become null, lone surrogates U+FFFD.

    Raises Unsendable.
    """
    try:
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = json.dumps(_without_nan(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise Unsendable("nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise Unsendable(f"not JSON: {error}") from None
    try:
        size = byte_length(text)
    except UnicodeEncodeError:
        text = _SURROGATE.sub("\ufffd", text)
        size = byte_length(text)
    if size > limit:
        raise Unsendable(f"{size} bytes, and the largest message is {limit}")
    return text


def byte_length(text: str) -> int:
    """Bytes of UTF-8. Raises UnicodeEncodeError for lone surrogates."""
    return len(text) if text.isascii() else len(text.encode())


def frame(kind: str, data: Any) -> str:
    """A frame's text. Raises Unsendable."""
    return encode({"type": kind, "data": data})


def error_frame(code: str, message: str, **extra: Any) -> str:
    """An error frame's text, whatever is in it."""
    try:
        return frame("error", {"message": message, "code": code, **extra})
    except Unsendable as error:
        return frame("error", {"message": f"{message[:1000]} (details left out: {error})", "code": code})


def observation_body(observation: Observation) -> dict[str, Any]:
    """An observation as /ws frames and HTTP replies hold it.

    `reward` and `done` only outside; `metadata` in both places: openenv-core 0.3.0 clients read the inner one,
    openenv 0.10.0's the outer one first. A tool result that can't be sent becomes the call's error.
    """
    body: dict[str, Any] = {
        "observation": {"metadata": observation.metadata, **observation.body},
        "reward": observation.reward,
        "done": observation.done,
    }
    if observation.metadata:
        body["metadata"] = observation.metadata
    return body


def observation_frame(observation: Observation) -> str:
    """An observation frame's text. A tool result that can't be sent becomes the call's error, and the episode goes on;
    raises Unsendable for anything else that can't."""
    try:
        return frame("observation", observation_body(observation))
    except Unsendable as error:
        if observation.body.get("result") is None:
            raise
        failed = {"error_type": "execution_error", "message": f"the tool's result can't be sent: {error}"}
        body = {**observation.body, "result": None, "error": failed}
        replaced = Observation(body, observation.reward, observation.done, observation.metadata)
        return frame("observation", observation_body(replaced))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is out of range")
    return number


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
