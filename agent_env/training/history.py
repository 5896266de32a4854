"""The chat so far: append-only, every message as it was received.

A session server that records a rollout compares each request's history with what it answered before: a message that
came back changed in one key is a different past, and its turn is no longer trained on. So each message is made text
once, when it is appended, and that same text goes into every later request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["History"]


class History:
    def __init__(self, prompt: Iterable[Mapping[str, Any]]) -> None:
        """Begins with the prompt's messages, copied: the caller's are never changed. Raises ValueError or TypeError
        for what is not JSON."""
        self.messages: list[dict[str, Any]] = []
        """Every message in order. Read only."""
        self._texts: list[str] = []
        for message in prompt:
            self._append(dict(message))

    def add_reply(self, message: Mapping[str, Any]) -> None:
        """The assistant's message, as received; only a missing `content` is added, as null: strict servers want the
        key. Raises ValueError for what can't be sent back."""
        self._append(dict(message) if "content" in message else {**message, "content": None})

    def add_result(self, call_id: Any, text: str) -> None:
        """A tool's answer to the call with `call_id`, as received."""
        self._append({"role": "tool", "tool_call_id": call_id, "content": text})

    def json(self) -> str:
        """The messages as a JSON array. Every text begins with the one before it, less the closing bracket."""
        return f"[{','.join(self._texts)}]"

    def _append(self, message: dict[str, Any]) -> None:
        self._texts.append(json.dumps(message, allow_nan=False))
        self.messages.append(message)
