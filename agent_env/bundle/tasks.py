"""Task files: a `.json` file holds one task's steps, a `.jsonl` file one task a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agent_env.bundle.files import Unreadable, open_regular, read_small
from agent_env.bundle.layout import Entry
from agent_env.bundle.model import LeftOut, Scoring, Task
from agent_env.bundle.problems import Problems, closest, printable
from agent_env.bundle.reader import TaskReader
from agent_env.bundle.stored import StoredTask
from agent_env.bundle.strict import MAX_FILE_BYTES, Malformed, decode, read_json
from agent_env.bundle.validation import Place

__all__ = ["TaskFiles", "read_task_files"]

_LINE_KEYS = ("name", "steps", "replayable", "tags")
_LINE = 'write one {"name": ..., "steps": [...]} a line'


@dataclass(slots=True)
class TaskFiles:
    """What the task files hold."""

    stored: dict[str, StoredTask] = field(default_factory=dict)
    """Playable tasks by name, in file-name order, lines in their order."""
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)
    """Names of tasks whose problems are noted."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    """The names of all tasks of each `.jsonl` file, by its name without the ending."""
    scorings: dict[tuple[tuple[str, ...], str | None], Scoring] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self.stored or name in self.left_out or name in self.malformed

    def keep(self, name: str, read: Task | LeftOut | None, data: bytes, *, is_line: bool) -> None:
        """Keep a task as it was read: from `data`, a file or a line."""
        if read is None:
            self.malformed.add(name)
        elif isinstance(read, LeftOut):
            self.left_out[name] = read
        else:
            self.stored[name] = StoredTask.pack(name, data, is_line=is_line)
            key = (read.scores, read.reward_step)
            known = self.scorings.get(key)
            count, example = (known.tasks + 1, known.example) if known else (1, name)
            self.scorings[key] = Scoring(*key, tasks=count, example=example)


def read_task_files(entries: Iterable[Entry], reader: TaskReader, problems: Problems) -> TaskFiles:
    files = TaskFiles()
    for entry in entries:
        try:
            if entry.file.endswith(".jsonl"):
                _Lines(entry, reader, files, problems).read()
            else:
                _read_one(entry, reader, files, problems)
        except Unreadable as error:
            files.malformed.add(entry.name)
            problems.add(entry.file, "", str(error), error.fix)
    return files


def _read_one(entry: Entry, reader: TaskReader, files: TaskFiles, problems: Problems) -> None:
    data = read_small(entry.path)
    if entry.name in files:
        what = f"the name {entry.name!r} is taken by a task of another file"
        problems.add(entry.file, "", what, "give each task its own")
        return
    try:
        steps = read_json(decode(data))
    except Malformed as error:
        files.malformed.add(entry.name)
        for flaw in error.flaws:
            problems.add(entry.file, *flaw)
        return
    files.keep(entry.name, reader.read(entry.name, steps, Place(entry.file), problems), data, is_line=False)


class _Lines:
    """A `.jsonl` file being read."""

    def __init__(self, entry: Entry, reader: TaskReader, files: TaskFiles, problems: Problems) -> None:
        self.entry = entry
        self.reader = reader
        self.files = files
        self.problems = problems
        self.names: list[str] = []

    def problem(self, line: int, key: str, what: str, fix: str) -> None:
        self.problems.add(self.entry.file, f"line {line}: {key}" if key else f"line {line}", what, fix)

    def read(self) -> None:
        self.files.lists[self.entry.name] = self.names
        number = 0
        with open_regular(self.entry.path) as file:
            while data := file.readline(MAX_FILE_BYTES + 1):
                number += 1
                if len(data) > MAX_FILE_BYTES:
                    self.problem(number, "", f"the line is longer than {MAX_FILE_BYTES >> 20} MiB", _LINE)
                    return
                if data.strip():
                    self.line(number, data.rstrip())
        if not number:
            self.problems.add(self.entry.file, "", "the file is empty", _LINE)

    def line(self, number: int, data: bytes) -> None:
        before = len(self.problems)
        try:
            value = read_json(decode(data))
        except Malformed as error:
            for flaw in error.flaws:
                inside = flaw.place.removeprefix("line 1").strip()
                self.problem(number, inside, flaw.what, flaw.fix)
            return
        if not isinstance(value, dict):
            self.problem(number, "", "the line is no object", _LINE)
            return
        name = self.name(number, value)
        self.check_keys(number, value)
        if name is None or "steps" not in value:
            return
        self.names.append(name)
        read = self.reader.read(
            name,
            value["steps"],
            Place(self.entry.file, f"line {number}: steps"),
            self.problems,
            replayable=value.get("replayable", True),
            tags=value.get("tags"),
        )
        self.files.keep(name, read if len(self.problems) == before else None, data, is_line=True)

    def name(self, number: int, value: dict[str, Any]) -> str | None:
        name = value.get("name")
        if not isinstance(name, str) or not name.strip() or not printable(name):
            self.problem(number, "name", "the task has no name", "give it a text of its own, on one line")
            return None
        if name in self.files:
            self.problem(number, "name", f"the name {name!r} is taken by an earlier task", "give each task its own")
            return None
        return name

    def check_keys(self, number: int, value: dict[str, Any]) -> None:
        for key in value:
            if key not in _LINE_KEYS:
                self.problem(number, key, f"{key!r} is no key of a task line", closest(key, _LINE_KEYS, "keys"))
        if "steps" not in value:
            self.problem(number, "steps", "it is missing", "add the task's steps")
        if not isinstance(value.get("replayable", True), bool):
            self.problem(number, "replayable", "it is neither true nor false", "write true or false")
        tags = value.get("tags", {})
        if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
            self.problem(number, "tags", "it is no object of texts", 'write {"KEY": "VALUE", ...}')
