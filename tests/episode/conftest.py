"""What every test of an episode needs: the sandbox below, the listener beside, and episodes that are closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle.model import Bundle, Task
from agent_env.episode import Episode
from agent_env.sandbox.process import ProcessSandbox

from .doubles import Counter, FakeSandbox, Heard, count_out_of_ten, make_bundle, make_task

Make = Callable[..., Episode]


@pytest.fixture
def sandbox() -> FakeSandbox:
    """One env, `counter`; its verifier scores how near it is to ten."""
    return FakeSandbox({"counter": Counter}, count_out_of_ten)


@pytest.fixture
async def box() -> AsyncIterator[ProcessSandbox]:
    """A started one, for tests with real envs."""
    sandbox = ProcessSandbox()
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
async def make(sandbox: FakeSandbox, heard: Heard, tmp_path: Path) -> AsyncIterator[Make]:
    """Makes an episode of a task, closed at the end of the test."""
    made: list[Episode] = []

    def make(task: Task | None = None, bundle: Bundle | None = None, **options: Any) -> Episode:
        bundle = bundle or make_bundle(tmp_path, tuple(sandbox.serves))
        made.append(Episode(task or make_task(), bundle, sandbox, episode_id="e1", listener=heard, **options))
        return made[-1]

    yield make
    for episode in made:
        await episode.close()
