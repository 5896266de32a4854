"""A hundred episodes at once on one engine, warm ones first, and no network pool to run out of."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import Limits
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.docker.options import OWNER_LABEL
from agent_env.sandbox.owners import this_owner
from agent_env.sandbox.pool import WarmPool

from .conftest import assert_nothing_left
from .envs import PROBE, get, make_env

pytestmark = [pytest.mark.docker, pytest.mark.soak, pytest.mark.timeout(600)]


async def test_a_hundred_episodes_are_live_at_once_and_all_end(engine: Any, tmp_path: Path) -> None:
    env = make_env(tmp_path / "probe", PROBE, name="probe")
    pool = WarmPool(DockerSandbox(Limits(memory_mib=64), warm_verifiers=0), warm=4, max_live=100)
    await pool.start()
    try:
        await pool.prepare(env)
        began = time.monotonic()
        live = await asyncio.gather(*(pool.deploy(env, episode_id=f"e{number}") for number in range(100)))
        print(f"100 up in {time.monotonic() - began:.1f} s")
        assert len({instance.id for instance in live}) == 100
        answers = await asyncio.gather(*(get(instance, f"/{n}") for n, instance in enumerate(live)))
        assert [answer["path"] for answer in answers] == [f"/{n}" for n in range(100)]
        containers = engine.containers(filters={"label": f"{OWNER_LABEL}={this_owner()}"})
        assert len(containers) == 100, "no more than the host may hold"
        began = time.monotonic()
        await asyncio.gather(*(instance.kill() for instance in live))
        print(f"100 gone in {time.monotonic() - began:.1f} s")
    finally:
        await pool.close()
    assert_nothing_left(engine)


async def test_forty_networks_of_their_own_at_once(engine: Any, tmp_path: Path) -> None:
    """Docker's own pools would end at 30."""
    hide = 'RUN ["python3", "-c", "import os; os.remove(\'/usr/local/bin/python3\')"]\n'
    dockerfile = f'FROM agentenv-python:local\nWORKDIR /app\nCOPY . /app\n{hide}CMD ["python", "server.py"]\n'
    env = make_env(tmp_path / "go", PROBE, name="go", dockerfile=dockerfile)
    box = DockerSandbox(Limits(memory_mib=64), warm_verifiers=0)
    await box.start()
    try:
        await (await box.deploy(env, episode_id="first")).kill()
        live = await asyncio.gather(*(box.deploy(env, episode_id=f"e{number}") for number in range(40)))
        assert len(engine.networks(filters={"label": f"{OWNER_LABEL}={this_owner()}"})) == 40
        answers = await asyncio.gather(*(get(instance, "/") for instance in live))
        assert answers == [{"path": "/"}] * 40
    finally:
        await box.close()
    assert_nothing_left(engine)
