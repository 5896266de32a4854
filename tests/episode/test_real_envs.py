"""Episodes in real sandboxed envs: GridSim's scores to the bit, and envs that die."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import Bundle, Task, load_bundle
from agent_env.episode import Episode, EpisodeFailed, ErrorKind, Failure, Outcome
from agent_env.sandbox.process import ProcessSandbox
from tests.bundles.gridsim import BUNDLE as GRIDSIM
from tests.bundles.gridsim import rules

from .doubles import write_bundle

pytestmark = pytest.mark.integration

DAYS = 6


@pytest.fixture(scope="module")
def gridsim() -> Bundle:
    return load_bundle(GRIDSIM)


@asynccontextmanager
async def playing(task: Task, bundle: Bundle, box: ProcessSandbox) -> AsyncIterator[Episode]:
    episode = Episode(task, bundle, box, episode_id=f"test-{task.name}")
    try:
        async with asyncio.timeout(60):
            await episode.start()
            yield episode
    finally:
        await episode.close()


def day_of(task: Task) -> Any:
    return next(step for step in task.steps if step.type == "apply_server_config").directives[0].args["day"]


async def test_gridsim_scores_exactly_by_its_rules(box: ProcessSandbox, gridsim: Bundle) -> None:
    async def reward(task: Task, schedule: list[int] | None) -> float:
        async with playing(task, gridsim, box) as episode:
            if schedule is not None:
                result = await episode.call("submit_schedule", {"schedule": schedule}, timeout=20)
                assert result.error is None, result.message
            outcome = await episode.end_turn("submitted")
            assert isinstance(outcome, Outcome)
            return outcome.reward

    tasks = [gridsim.splits["eval"].tasks[index] for index in range(DAYS)]
    idle = await asyncio.gather(*(reward(task, [0] * 24) for task in tasks))
    best = await asyncio.gather(*(reward(task, rules.optimum(day_of(task))[1]) for task in tasks))
    broken = await reward(tasks[0], [-1] + [0] * 23)
    nothing = await reward(tasks[0], None)
    assert idle == [0.2] * DAYS
    assert best == [1.0] * DAYS
    assert (broken, nothing) == (0.0, 0.0)


async def test_a_malformed_schedule_is_the_models_error_and_is_not_graded(box: ProcessSandbox, gridsim: Bundle) -> None:
    async with playing(gridsim.splits["eval"].tasks[0], gridsim, box) as episode:
        for schedule in ("[0]", [True] * 24, [0.5] * 24, [0] * 23, None):
            result = await episode.call("submit_schedule", {"schedule": schedule})
            assert result.error is ErrorKind.INVALID_ARGUMENTS, result
        assert (await episode.call("submit_schedule", {"schedule": [0] * 24})).error is None
        assert await episode.end_turn("") == Outcome(0.2, {"score": 0.2})


async def test_a_verifier_that_raises_leaves_the_episode_unscored(box: ProcessSandbox, gridsim: Bundle) -> None:
    task = gridsim.splits["eval"].tasks[0]
    without_day = dataclasses.replace(
        task, steps=tuple(step for step in task.steps if step.type != "apply_server_config")
    )
    async with playing(without_day, gridsim, box) as episode:
        with pytest.raises(EpisodeFailed, match="no day was loaded") as failed:
            await episode.end_turn("")
    assert failed.value.reason is Failure.UNSCORED


SERVER = '''
import os, sys, time
from agent_env.env import Env, serve, tool


class Fragile(Env):
    """Breaks as asked."""

    name = "fragile"

    @tool
    def crash(self) -> str:
        """End the server."""
        print("the end is near", flush=True)
        os._exit(3)

    @tool
    def big(self, characters: int) -> str:
        """Say much."""
        return "x" * characters

    @tool
    def hang(self) -> str:
        """Block the server for ever."""
        time.sleep(600)
        return ""

    def get_data(self) -> dict[str, int]:
        return {"alive": 1}


if __name__ == "__main__":
    serve(Fragile)
'''
VERIFY = """
from agent_env.env.client import data


async def verify(mcp_url, run=None):
    reply = run.turns[-1].reply.text
    return [{"result": data(mcp_url) == {"alive": 1} and reply == "over"}]
"""


@pytest.fixture
def fragile(tmp_path: Path) -> Bundle:
    """A bundle whose env breaks as asked."""
    files = {
        "envs/fragile/server.py": SERVER,
        "envs/fragile/Dockerfile": 'FROM python:3.12-slim\nWORKDIR /app\nCOPY . .\nCMD ["python", "server.py"]\n',
        "artifacts/check/verify.py": VERIFY,
        "tasks/break.json": json.dumps(
            [
                {"id": "env", "type": "deploy_env", "env_id": "fragile"},
                {"id": "agent", "type": "deploy_agent", "env_ids": ["fragile"]},
                {"id": "ask", "type": "prompt_agent", "prompt": "Break it."},
                {
                    "id": "check",
                    "type": "env_outcome_verifier",
                    "env_id": "fragile",
                    "file_artifact_id": "check",
                    "verifier_id": "check",
                },
            ]
        ),
    }
    return write_bundle(tmp_path / "fragile", files)


async def test_an_env_that_dies_in_a_call_is_lost_with_its_reason_and_output(
    box: ProcessSandbox, fragile: Bundle
) -> None:
    async with playing(fragile.splits["all"].tasks[0], fragile, box) as episode:
        result = await episode.call("crash", {}, timeout=20)
        assert result.error is ErrorKind.TRANSPORT
        assert "exit status 3" in result.message
        assert result.message.endswith("the end is near")
        assert episode.lost.is_set()
        with pytest.raises(EpisodeFailed, match="exit status 3") as failed:
            await episode.end_turn("over")
        assert failed.value.reason is Failure.ENV_LOST


async def test_a_result_of_20_mb_comes_whole(box: ProcessSandbox, fragile: Bundle) -> None:
    async with playing(fragile.splits["all"].tasks[0], fragile, box) as episode:
        result = await episode.call("big", {"characters": 20_000_000}, timeout=30)
        assert result.error is None
        assert len(result.text) == 20_000_000
        assert await episode.end_turn("over") == Outcome(1.0, {"check": 1.0})


async def test_a_hanging_tool_times_out_and_the_episode_still_closes(box: ProcessSandbox, fragile: Bundle) -> None:
    async with playing(fragile.splits["all"].tasks[0], fragile, box) as episode:
        result = await episode.call("hang", {}, timeout=0.2)
        assert result.error is ErrorKind.TIMEOUT
