"""Playing an evaluation: rows times samples, a bounded number at once, each result kept as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_env.evaluate.models import Model
from agent_env.evaluate.results import EpisodeResult, ResultsFile
from agent_env.training.rollout import Rollout
from agent_env.training.row import read_row, read_token

__all__ = ["Job", "play"]


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play: a row as the writer wrote it, and which of the row's samples."""

    row: Mapping[str, Any]
    sample: int
    tags: Mapping[str, str]


async def play(
    jobs: Sequence[Job],
    model: Model,
    results: ResultsFile,
    *,
    concurrency: int,
    on_result: Callable[[EpisodeResult], None] = lambda result: None,
) -> None:
    """Play the jobs, `concurrency` at once; every finished episode is in `results` before `on_result` hears of it.

    The rollout is the one that training uses. Cancelled: episodes in flight are closed and not kept. Raises ModelError
    and InvalidRow, as an ExceptionGroup.
    """
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            result = await _play_one(job, model)
            results.add(result)
            on_result(result)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(min(concurrency, len(jobs))):
            tasks.create_task(worker())


async def _play_one(job: Job, model: Model) -> EpisodeResult:
    row = read_row(job.row["messages"], job.row["metadata"])
    token = read_token(row.server)
    async with model.chat(row) as chat:
        result = await Rollout(row, chat, token=token).play()
    return EpisodeResult.of(result, job.sample, job.tags)
