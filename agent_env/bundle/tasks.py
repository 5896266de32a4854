"""Task files: a `.json` file has one task's steps, a `.jsonl` file one task a line. Kept as text, parsed on demand."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agent_env.bundle.files import Unreadable, open_regular, read_small
from agent_env.bundle.layout import Entry
from agent_env.bundle.model import LeftOut, Scoring, Task
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.reader import TaskReader
from agent_env.bundle.strict import MAX_FILE_BYTES, Malformed, decode, read_json
from agent_env.bundle.validation import Place

__all__ = ["StoredTask", "StoredTasks", "TaskFiles", "read_task_files"]

_LINE_KEYS = ("name", "steps", "replayable", "tags")


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task that was found playable, as the text that it was read from, compressed."""

    name: str
    packed: bytes
    is_line: bool
    """Whether the text is a line of a `.jsonl` file: an object, not an array of steps."""


class StoredTasks:
    """A `TaskList` that parses each task when it is asked for."""

    def __init__(self, stored: Sequence[StoredTask], reader: TaskReader) -> None:
        self._stored = stored
        self._reader = reader

    def __len__(self) -> int:
        return len(self._stored)

    def __getitem__(self, index: int, /) -> Task:
        stored = self._stored[index]
        value = read_json(zlib.decompress(stored.packed).decode())
        steps, replayable = (value["steps"], value.get("replayable", True)) if stored.is_line else (value, True)
        task = self._reader.read(stored.name, steps, Place(""), Problems(), replayable=replayable)
        assert isinstance(task, Task), f"{stored.name!r} was playable when the bundle was loaded"
        return task

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))


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


def read_task_files(entries: Iterable[Entry], reader: TaskReader, problems: Problems) -> TaskFiles:
    files = TaskFiles()
    for entry in entries:
        try:
            if entry.file.endswith(".jsonl"):
                _read_lines(entry, reader, files, problems)
            else:
                _read_one(entry, reader, files, problems)
        except Unreadable as error:
            problems.add(entry.file, "", str(error), "put a task file here")
    return files


def _read_one(entry: Entry, reader: TaskReader, files: TaskFiles, problems: Problems) -> None:
    data = read_small(entry.path)
    if not _free(entry.name, entry.file, "", files, problems):
        return
    try:
        steps = read_json(decode(data))
    except Malformed as error:
        files.malformed.add(entry.name)
        for flaw in error.flaws:
            problems.add(entry.file, *flaw)
        return
    read = reader.read(entry.name, steps, Place(entry.file), problems)
    _keep(read, entry.name, data, files, is_line=False)


def _read_lines(entry: Entry, reader: TaskReader, files: TaskFiles, problems: Problems) -> None:
    names = files.lists.setdefault(entry.name, [])
    with open_regular(entry.path) as file:
        number = 0
        while line := file.readline(MAX_FILE_BYTES + 1):
            number += 1
            if len(line) > MAX_FILE_BYTES:
                what = f"the line is longer than {MAX_FILE_BYTES >> 20} MiB"
                problems.add(entry.file, f"line {number}", what, "write one task a line")
                return
            if line.strip():
                _read_line(line, number, entry, names, reader, files, problems)
    if not names and not number:
        problems.add(entry.file, "", "the file is empty", 'write one {"name": ..., "steps": [...]} a line')


def _read_line(
    line: bytes,
    number: int,
    entry: Entry,
    names: list[str],
    reader: TaskReader,
    files: TaskFiles,
    problems: Problems,
) -> None:
    where = f"line {number}"
    try:
        value = read_json(decode(line))
    except Malformed as error:
        for flaw in error.flaws:
            inside = flaw.place.removeprefix("line 1").strip()
            place = f"{where} {inside}" if flaw.place.startswith("line 1 ") else f"{where}: {inside}"
            problems.add(entry.file, place if inside else where, flaw.what, flaw.fix)
        return
    before = len(problems)
    if not isinstance(value, dict):
        problems.add(entry.file, where, "the line is no object", 'write {"name": ..., "steps": [...]}')
        return
    for key in value:
        if key not in _LINE_KEYS:
            fix = closest(key, _LINE_KEYS, "keys")
            problems.add(entry.file, f"{where}: {key}", f"{key!r} is no key of a task line", fix)
    name, replayable = value.get("name"), value.get("replayable", True)
    if not isinstance(name, str) or not name or any(ord(character) < 32 for character in name):
        problems.add(entry.file, f"{where}: name", "the task has no name", "give it a text of its own, on one line")
        name = None
    elif not _free(name, entry.file, f"{where}: name", files, problems):
        name = None
    if not isinstance(replayable, bool):
        problems.add(entry.file, f"{where}: replayable", "it is neither true nor false", "write true or false")
        replayable = True
    tags = value.get("tags", {})
    if not isinstance(tags, dict) or not all(isinstance(tag, str) for tag in tags.values()):
        problems.add(entry.file, f"{where}: tags", "it is no object of texts", 'write {"KEY": "VALUE", ...}')
    if "steps" not in value:
        problems.add(entry.file, f"{where}: steps", "it is missing", "add the task's steps")
    elif name is not None:
        names.append(name)
        steps = Place(entry.file, f"{where}: steps")
        read = reader.read(name, value["steps"], steps, problems, replayable=replayable)
        _keep(read if len(problems) == before else None, name, line, files, is_line=True)


def _free(name: str, file: str, place: str, files: TaskFiles, problems: Problems) -> bool:
    if name not in files.stored and name not in files.left_out and name not in files.malformed:
        return True
    problems.add(file, place, f"the name {name!r} is taken by an earlier task", "give each task its own")
    return False


def _keep(read: Task | LeftOut | None, name: str, data: bytes, files: TaskFiles, *, is_line: bool) -> None:
    if read is None:
        files.malformed.add(name)
        return
    if isinstance(read, LeftOut):
        files.left_out[name] = read
        return
    files.stored[name] = StoredTask(name, zlib.compress(data, 1), is_line)
    key = (read.scores, read.reward_step)
    known = files.scorings.get(key)
    count, example = (known.tasks + 1, known.example) if known else (1, name)
    files.scorings[key] = Scoring(*key, tasks=count, example=example)
