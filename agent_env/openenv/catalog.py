"""The tasks a server offers, by split and index, and which of them a reset means. Deploys nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_env.bundle.model import Task, TaskList
from agent_env.episode.types import EpisodeFailed, Failure
from agent_env.openenv.schemas import ResetRequest

__all__ = ["Catalog", "Place", "describe"]


@dataclass(frozen=True, slots=True)
class Place:
    """A task, and where it was found."""

    split: str
    index: int
    task: Task

    def summary(self) -> dict[str, Any]:
        """What metadata says of the task."""
        return {"id": self.task.id, "name": self.task.name, "split": self.split, "index": self.index}


class Catalog:
    """Splits of tasks. `name` is the env's on the wire; `fingerprint` identifies the content and goes into rows."""

    def __init__(self, *, name: str, description: str, fingerprint: str, splits: Mapping[str, TaskList]) -> None:
        self.name = name
        self.description = description
        self.fingerprint = fingerprint
        self.splits = dict(splits)
        self._places: dict[str, tuple[str, int]] | None = None

    def tasks(self, split: str) -> TaskList:
        """Raises LookupError, naming the splits there are."""
        try:
            return self.splits[split]
        except KeyError:
            raise LookupError(f"unknown split {_short(split)}; this server has: {', '.join(self.splits)}") from None

    def place(self, split: str, index: int) -> Place:
        """Raises LookupError for an unknown split, or an index that isn't from 0 to the split's length - 1."""
        tasks = self.tasks(split)
        if not 0 <= index < len(tasks):
            last = f"0 to {len(tasks) - 1}" if len(tasks) else "none: it is empty"
            raise LookupError(f"split {split!r} has no task {_short(index)}; indices are {last}")
        return Place(split, index, tasks[index])

    async def choose(self, request: ResetRequest) -> Place:
        """The task that a reset means: `split` and `index`, or `task_id`, or the one that `seed` picks.

        A seed counts through the given split, else through `train`, else through the first split: every seed is one
        task, and consecutive seeds are consecutive tasks. Without a seed it is that split's first task. Raises
        EpisodeFailed (UNKNOWN_TASK).
        """
        try:
            return await self._choose(request)
        except LookupError as error:
            raise EpisodeFailed(Failure.UNKNOWN_TASK, str(error.args[0])) from None

    async def _choose(self, request: ResetRequest) -> Place:
        named = request.task_id
        if named is None and request.task_spec is not None:
            named = str(request.task_spec.get("id", ""))
        if request.index is not None:
            if request.split is None:
                raise LookupError("an index without a split names no task: give both")
            return self.place(request.split, request.index)
        if named is not None:
            return await self._find(named, request.split)
        if request.split is not None and request.seed is None:
            raise LookupError("a split without an index or a seed names no task: give both")
        split = request.split or ("train" if "train" in self.splits else next(iter(self.splits), ""))
        tasks = self.tasks(split)
        if not len(tasks):
            raise LookupError(f"split {split!r} is empty")
        return self.place(split, (request.seed or 0) % len(tasks))

    async def _find(self, named: str, split: str | None) -> Place:
        if self._places is None:
            # Tasks of a large bundle are parsed when asked for, here all of them: not on the event loop.
            self._places = await asyncio.to_thread(self._index)
        key = named if split is None else f"{split}\0{named}"
        if (found := self._places.get(key)) is not None:
            return self.place(*found)
        raise LookupError(f"no task is called {_short(named)}" + (f" in split {_short(split)}" if split else ""))

    def _index(self) -> dict[str, tuple[str, int]]:
        places: dict[str, tuple[str, int]] = {}
        for split, tasks in self.splits.items():
            for index, task in enumerate(tasks):
                for key in (task.id, task.name):
                    places.setdefault(key, (split, index))
                    places.setdefault(f"{split}\0{key}", (split, index))
        return places


def describe(place: Place) -> dict[str, Any]:
    """A task as the Task API gives it."""
    task = place.task
    first = task.turns[0]
    return {
        "id": task.id,
        "name": task.name,
        "index": place.index,
        "prompt": first.prompt,
        "system_prompt": first.system_prompt,
        "agent": task.agent_name,
        "turns": len(task.turns),
        "replayable": task.replayable,
        "toolset": task.toolset,
        "tags": dict(task.tags),
    }


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]}...'"
