"""An engine that goes away under live episodes, and comes back. On an engine of this test's own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import DeployFailed, EnvLost
from agent_env.sandbox.docker import DockerSandbox

from .engines import Engine
from .envs import PROBE, get, make_env

pytestmark = [pytest.mark.docker, pytest.mark.faults]


@pytest.fixture
def own_engine(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """`engine` has found out that one can be run here."""
    own = Engine(Path(f"/tmp/agentenv-docker-{os.getpid()}"))
    with own.running(monkeypatch):
        yield own


async def test_crash_of_the_engine_loses_its_envs_by_name_and_the_next_deploy_works(
    own_engine: Engine, tmp_path: Path
) -> None:
    env = make_env(tmp_path / "probe", PROBE, name="probe")
    box = DockerSandbox(warm_verifiers=0, daemon_timeout=5.0)
    await box.start()
    try:
        instance = await box.deploy(env, episode_id="before")
        own_engine.kill()
        with pytest.raises(DeployFailed, match=r"env 'probe': no Docker daemon answers at unix://"):
            await asyncio.wait_for(box.deploy(env, episode_id="meanwhile"), 20)
        own_engine.script("start")
        assert await asyncio.wait_for(instance.wait(), 20)
        with pytest.raises(EnvLost, match="env 'probe' has ended"):
            await instance.connect()
        await asyncio.wait_for(instance.kill(), 20)
        after = await asyncio.wait_for(box.deploy(env, episode_id="after"), 30)
        assert await get(after, "/") == {"path": "/"}
        await after.kill()
        for _ in range(300):
            if own_engine.containers() == "":
                break
            await asyncio.sleep(0.1)
        assert own_engine.containers() == "", "what could not be removed meanwhile is removed once it can be"
    finally:
        await box.close()
        await box._janitor.close()
