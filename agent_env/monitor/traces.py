"""Episode traces: one JSONL file an episode, written as things happen, so that a crash leaves what there was.

A line is {"time": seconds since the epoch, "kind": ..., "episode_id": ..., "task_id": ..., ...the event's data}; kinds
are those of `agent_env.episode.types.Event`. Tokens and environment variables never reach an event, so none is in one.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from agent_env.episode.types import Event

__all__ = ["MAX_TEXT", "MAX_TRACE_BYTES", "TraceWriter", "bounded", "read_trace"]

logger = logging.getLogger(__name__)

MAX_TEXT = 20_000
"""Characters of one text in a trace; a longer one is cut, with its length."""
MAX_TRACE_BYTES = 8 * 1024 * 1024
"""After this much, only the events that end an episode are written."""
_ENDING = {"scored", "failed", "closed"}


def bounded(value: Any, most: int = MAX_TEXT) -> Any:
    """The value with texts of more than `most` characters cut."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}… ({len(value)} characters)"
    if isinstance(value, Mapping):
        return {key: bounded(item, most) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bounded(item, most) for item in value]
    return value


class TraceWriter:
    """A listener that writes an episode's events to FOLDER/<episode id>.jsonl.

    Never raises: a full disk stops traces, not episodes.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, tuple[TextIO, int]] = {}
        self._failed = False

    def path(self, episode_id: str) -> Path:
        """Where an episode's trace is. Ids may come from clients: only harmless characters reach the file system."""
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', episode_id)[:120].lstrip('.') or '_'}.jsonl"

    def __call__(self, event: Event) -> None:
        try:
            self._write(event)
        except OSError as error:
            if not self._failed:
                self._failed = True
                logger.error("traces can't be written to %s any more: %s", self.folder, error)

    def _write(self, event: Event) -> None:
        file, size = self._files.get(event.episode_id) or (self.path(event.episode_id).open("a", encoding="utf-8"), 0)
        if size < MAX_TRACE_BYTES or event.kind in _ENDING:
            head = {"time": round(event.time, 6), "kind": event.kind}
            ids = {"episode_id": event.episode_id, "task_id": event.task_id}
            line = json.dumps({**head, **ids, **bounded(event.data)}, default=str)
            file.write(line + "\n")
            file.flush()
            size += len(line) + 1
        if event.kind == "closed":
            file.close()
            self._files.pop(event.episode_id, None)
        else:
            self._files[event.episode_id] = (file, size)

    def close(self) -> None:
        for file, _ in self._files.values():
            file.close()
        self._files.clear()


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The events of a trace file, in order. A last line that a crash cut short is left out.

    Raises OSError, and ValueError naming the line that is no event.
    """
    events = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(f"{path}: line {number}: not JSON; is this a trace?") from None
        if not isinstance(event, dict) or "kind" not in event:
            raise ValueError(f"{path}: line {number}: not an event; is this a trace?")
        events.append(event)
    return events
