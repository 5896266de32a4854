"""A tool's result as the text of a `tool` message: always a string, never empty, never too long."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["NO_OUTPUT", "cut", "is_error", "result_text", "sound"]

NO_OUTPUT = "(no output)"
"""Stands for an empty result: some servers refuse an empty tool message, some templates drop it."""


def result_text(result: Any) -> str:
    """Text as it is; MCP results by their text blocks, or their structured value if they have none; any other value
    as JSON (non-finite numbers as null); nothing as NO_OUTPUT."""
    if isinstance(result, Mapping) and isinstance(result.get("content"), list):
        blocks = [_block_text(block) for block in result["content"]]
        structured = next((result[key] for key in ("structured_content", "data") if result.get(key) is not None), None)
        text = "\n".join(blocks) if blocks else _as_text(structured)
    else:
        text = _as_text(result)
    return sound(text) or NO_OUTPUT


def sound(text: str) -> str:
    """The text without lone surrogates, which JSON can escape and UTF-8 can't hold: `?` stands for each."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def is_error(result: Any) -> bool:
    """Whether an MCP result says that the tool failed."""
    return isinstance(result, Mapping) and any(result.get(key) is True for key in ("is_error", "isError"))


def cut(text: str, limit: int) -> str:
    """At most `limit` characters: a longer text loses its middle, and says there how much."""
    if len(text) <= limit:
        return text
    note = f"\n[... cut: {len(text)} characters, of which the first and last {{}} are shown ...]\n"
    kept = max(0, (limit - len(note.format(limit))) // 2)
    return f"{text[:kept]}{note.format(kept)}{text[len(text) - kept :]}"


def _block_text(block: Any) -> str:
    if not isinstance(block, Mapping):
        return _as_text(block)
    if isinstance(text := block.get("text"), str):
        return text
    resource = block.get("resource")
    if isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    detail = block.get("mimeType") or block.get("uri")
    return f"[{block.get('type', 'content')}{f': {detail}' if detail else ''}]"


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode(errors="replace")
    try:
        return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return f"(a result that is no JSON: {error})"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
