"""What an evaluation keeps: one line an episode in results.jsonl, whole or not at all, so that a run can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent_env.training.types import RolloutResult

__all__ = ["EpisodeResult", "ResultsError", "ResultsFile", "by_task", "read_results", "write_json"]


class ResultsError(Exception):
    """A results file or run folder can't be read; str() is one line naming it."""


class EpisodeResult(BaseModel):
    """One episode, as results.jsonl holds it."""

    model_config = ConfigDict(frozen=True)

    split: str
    index: int
    sample: int
    """Which of the task's episodes, from 0."""
    task_id: str
    tags: dict[str, str] = Field(default_factory=dict)
    """The task's own, from its bundle."""
    status: str
    end_reason: str
    error: str | None = None
    reward: float
    """0.0 for an episode that failed: `status` tells it from a scored 0."""
    scores: dict[str, float] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)
    episode_id: str = ""
    """The name of its trace."""

    @property
    def scored(self) -> bool:
        return self.status == "scored"

    @property
    def key(self) -> tuple[str, int, int]:
        return self.split, self.index, self.sample

    @classmethod
    def of(cls, result: RolloutResult, sample: int, tags: Mapping[str, str]) -> EpisodeResult:
        return cls(
            split=result.split,
            index=result.index,
            sample=sample,
            task_id=result.task_id,
            tags=dict(tags),
            status=result.status.value,
            end_reason=result.end_reason.value,
            error=result.error,
            reward=result.reward,
            scores=result.scores,
            counts=result.counts,
            seconds={phase: round(value, 6) for phase, value in result.seconds.items()},
            episode_id=result.episode_id,
        )


class ResultsFile:
    """Appends episodes. Use as a context manager; each line reaches the file in one write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        # A line that a crash cut short would swallow the next one: end the file at its last whole line.
        with self._path.open("a+b") as file:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def add(self, result: EpisodeResult) -> None:
        os.write(self._fd, (result.model_dump_json() + "\n").encode())


def read_results(path: Path) -> list[EpisodeResult]:
    """Every whole line, in order. A run folder stands for the results.jsonl in it. Raises ResultsError."""
    file = path / "results.jsonl" if path.is_dir() else path
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise ResultsError(f"{file}: {error.strerror}; name the folder of an `agent-env eval` run") from error
    results = []
    for number, line in enumerate(lines[:-1], 1):  # the last is "", or was cut short
        try:
            results.append(EpisodeResult.model_validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ResultsError(f"{file}: line {number}: {place or 'the line'}: {first['msg']}") from error
    return results


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all."""
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    part.replace(path)


def by_task(results: Iterable[EpisodeResult]) -> dict[tuple[str, int], list[EpisodeResult]]:
    """The episodes of each task, tasks in order of split and index."""
    tasks: dict[tuple[str, int], list[EpisodeResult]] = {}
    for result in results:
        tasks.setdefault((result.split, result.index), []).append(result)
    return dict(sorted(tasks.items()))
