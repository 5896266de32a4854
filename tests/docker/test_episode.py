"""A whole episode of GridSim in containers: deploy, tool call, verifier, score."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agent_env.bundle import load_bundle
from agent_env.bundle.model import Bundle
from agent_env.episode.episode import Episode
from agent_env.episode.types import Outcome
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.pool import WarmPool

from .envs import DOCKERFILE

pytestmark = pytest.mark.docker

GRIDSIM = Path(__file__).parents[2] / "bundles/gridsim-v1"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """GridSim on the image of this machine's Python: its own Dockerfile asks a registry."""
    found = load_bundle(GRIDSIM)
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(DOCKERFILE)
    env = found.envs["gridsim"]
    envs = {"gridsim": dataclasses.replace(env, digest=f"{env.digest[:8]}-local", dockerfile=dockerfile)}
    return dataclasses.replace(found, envs=envs)


async def test_gridsim_is_played_and_scored_in_containers(engine: object, bundle: Bundle) -> None:
    pool = WarmPool(DockerSandbox(), warm=1, max_live=4)
    await pool.start()
    try:
        await pool.prepare(bundle.envs["gridsim"])
        task = bundle.splits["all"].tasks[0]
        rewards = []
        for number in range(2):
            episode = Episode(task, bundle, pool, episode_id=f"e{number}")
            try:
                await episode.start()
                result = await episode.call("submit_schedule", {"schedule": [0] * 24})
                assert result.error is None, result
                outcome = await episode.end_turn("done")
                assert isinstance(outcome, Outcome)
                rewards.append(outcome.reward)
            finally:
                await episode.close()
        assert rewards[0] == rewards[1]
        assert rewards[0] is not None
    finally:
        await pool.close()
