"""A deploy that is cancelled, or whose sandbox is closed, at the last moment. No engine is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import DeployFailed
from agent_env.sandbox.docker import DockerSandbox

from .envs import COUNTER, make_env


class Instance:
    killed = 0

    async def kill(self) -> None:
        self.killed += 1


async def test_env_that_came_up_just_as_its_deploy_was_cancelled_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, instance, up = DockerSandbox(), Instance(), asyncio.Event()

    async def deploy(*_: Any) -> Instance:
        await asyncio.sleep(0)
        up.set()
        return instance

    monkeypatch.setattr(box, "_deploy", deploy)
    task = asyncio.create_task(box.deploy(make_env(tmp_path / "env", COUNTER), episode_id="e"))
    await up.wait()  # the result is there, and its caller has not seen it yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert instance.killed == 1
    await box.close()


async def test_closed_sandbox_fails_the_deploys_that_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = DockerSandbox()

    async def deploy(*_: Any) -> Instance:
        await asyncio.sleep(100)
        return Instance()

    monkeypatch.setattr(box, "_deploy", deploy)
    env = make_env(tmp_path / "env", COUNTER)
    task = asyncio.create_task(box.deploy(env, episode_id="e"))
    await asyncio.sleep(0)
    await box.close()
    with pytest.raises(DeployFailed, match="the sandbox was closed"):
        await task
    with pytest.raises(DeployFailed, match="the sandbox was closed"):
        await box.deploy(env, episode_id="later")
