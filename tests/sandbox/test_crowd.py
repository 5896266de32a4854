"""A thousand envs live at once: each is its own, and all of them end."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import EnvInstance
from agent_env.sandbox.process import ProcessSandbox
from tests.sandbox.doubles import descendants, gone, open_files, run

pytestmark = [pytest.mark.integration, pytest.mark.soak, pytest.mark.timeout(600)]

LIVE = 1000
AT_ONCE = 32
"""Deploys, and later calls, under way."""


async def test_a_thousand_are_live_each_answers_and_all_end(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    await sandbox.prepare(probe)
    shared, files = set(descendants()), open_files()
    slots = asyncio.Semaphore(AT_ONCE)

    async def deploy(number: int) -> EnvInstance:
        async with slots:
            return await sandbox.deploy(probe, episode_id=str(number))

    async def write_and_read(number: int, env: EnvInstance) -> int:
        async with slots:
            await run(env, f"kept = {number}")
        async with slots:
            value: int = await run(env, "value = kept")
            return value

    envs = await asyncio.gather(*(deploy(number) for number in range(LIVE)))
    try:
        assert len({env.id for env in envs}) == LIVE
        assert await asyncio.gather(*(write_and_read(*pair) for pair in enumerate(envs))) == list(range(LIVE))
        its = {pid: seen for pid, seen in descendants().items() if pid not in shared}
        assert len(its) >= LIVE
    finally:
        began = time.monotonic()
        await asyncio.gather(*(env.kill() for env in envs))
        print(f"{LIVE} ended in {time.monotonic() - began:.2f} s")
    assert await gone(its, 5.0) == set()
    assert open_files() == files
