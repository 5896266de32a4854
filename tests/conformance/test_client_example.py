"""The example for OpenEnv's own client, run with that client against a server that is full at first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import agent_env
from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.openenv.client import Session
from tests.peers import peer_python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

EXAMPLE = Path(agent_env.__file__).parents[1] / "examples" / "openenv_client.py"


async def test_the_example_waits_for_room_and_plays() -> None:
    python = peer_python("openenv==0.10.0")
    async with serving(build_app("gridsim-v1", max_concurrent_envs=1)) as url:
        holder = await Session.open(url, timeout=30, wait=30, call_timeout=30)
        await holder.reset(timeout=60, split="eval", index=1)
        process = await asyncio.create_subprocess_exec(
            python, EXAMPLE, url, "0", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        done, waiting = await asyncio.wait({asyncio.create_task(process.communicate())}, timeout=20)
        assert not done, (await done.pop()) if done else None  # it is refused, and tries again
        await holder.close()
        out, err = await asyncio.wait_for(waiting.pop(), 120)
        assert out.decode().strip() == "0.2", err.decode()
