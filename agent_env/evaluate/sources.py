"""What an evaluation plays on: a running server by its URL, or a bundle that it serves itself meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent_env.bundle.resolve import Reward
from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.openenv.task_client import TaskApi
from agent_env.training.miles.rows import write_rows
from agent_env.training.rehearsal import read_rows
from agent_env.training.types import ServerSettings

__all__ = ["is_url", "rows_and_tags", "served"]

Progress = Callable[[str], None]


def is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


@asynccontextmanager
async def served(
    source: str, *, max_concurrent_envs: int, sandbox: str, reward: Reward | None, traces: Path | None
) -> AsyncIterator[str]:
    """The URL of the source: its own, or a bundle's that is served while the block runs. Raises as build_app does."""
    if is_url(source):
        yield source.rstrip("/")
        return
    app = build_app(source, max_concurrent_envs=max_concurrent_envs, sandbox=sandbox, reward=reward, traces=traces)
    async with serving(app) as url:
        yield url


async def rows_and_tags(
    settings: ServerSettings, split: str, folder: Path, token: str | None, progress: Progress
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """The split's rows, as the row writer writes them into `folder`, and each task's tags.

    Raises RowsError, and KeyError with the splits that there are.
    """
    names = await write_rows(settings, folder, token=token, progress=progress)
    if f"{split}.jsonl" not in names:
        raise KeyError(", ".join(name.removesuffix(".jsonl") for name in names))
    tags: list[dict[str, str]] = []
    async with TaskApi(settings.urls[0], token=token) as api:
        environment = (await api.environments())[0]
        async for task in api.tasks(environment, split):
            given = task.get("tags")
            tags.append({str(k): str(v) for k, v in given.items()} if isinstance(given, dict) else {})
    return read_rows(folder / f"{split}.jsonl"), tags
