"""Tasks kept as the text that they were read from, and parsed when they are asked for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent_env.bundle.model import Task
from agent_env.bundle.problems import Problems
from agent_env.bundle.reader import TaskReader
from agent_env.bundle.strict import read_json
from agent_env.bundle.validation import Place

__all__ = ["StoredTask", "StoredTasks"]


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task that was found playable when the bundle was loaded."""

    name: str
    packed: bytes
    """Its JSON text, compressed: a task of some kilobytes takes one."""
    is_line: bool
    """Whether the text is a line of a `.jsonl` file: an object, not an array of steps."""

    @classmethod
    def pack(cls, name: str, data: bytes, *, is_line: bool) -> StoredTask:
        return cls(name, zlib.compress(data, 1), is_line)

    def unpack(self) -> dict[str, Any]:
        """The task as a line of a `.jsonl` file has it."""
        value = read_json(zlib.decompress(self.packed).decode())
        return value if self.is_line else {"steps": value}


class StoredTasks:
    """A `TaskList` over stored tasks."""

    def __init__(self, stored: Sequence[StoredTask], reader: TaskReader) -> None:
        self._stored = stored
        self._reader = reader

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, index: int, /) -> Task:
        stored = self._stored[index]
        line = stored.unpack()
        task = self._reader.read(
            stored.name,
            line["steps"],
            Place(""),
            Problems(),
            replayable=line.get("replayable", True),
            tags=line.get("tags"),
        )
        assert isinstance(task, Task), f"{stored.name!r} was playable when the bundle was loaded"
        return task

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))
