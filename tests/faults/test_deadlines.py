"""Deadlines, aborts and crowds on the real server: what was given up is torn down."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agent_env.training.miles import agent
from tests.faults.doubles import ServerProcess
from tests.faults.test_matrix import adds, ends, row
from tests.training.chat_server import Answer, ChatServer, call, completion
from tests.training.row import PROMPT

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]


async def play(server: ServerProcess, chat: ChatServer, task: int = 0, **settings: Any) -> dict[str, Any]:
    async with chat.serve():
        given = row(server.url, task, **settings)
        return await agent.run(base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=given)


@pytest.mark.parametrize(("setting", "wanted"), [("fail", ("failed", 0.0)), ("score", ("scored", 0.3))])
async def test_a_hanging_call_ends_in_time_and_so_does_its_env(setting: str, wanted: tuple[str, float]) -> None:
    hangs = completion(None, call("slow_add", {"x": 1, "seconds": 60}))
    async with ServerProcess().serve() as server:
        began = time.monotonic()
        result = await play(server, ChatServer(adds(3), hangs), call_timeout=1.0, on_call_timeout=setting)
        assert time.monotonic() - began < 20
        await server.empty()
    report = result["agentenv"]
    assert (report["status"], report["end_reason"], result["reward"]) == (wanted[0], "call_timeout", wanted[1])


async def test_abort_tears_the_envs_down() -> None:
    async with ServerProcess().serve() as server:
        playing = [asyncio.create_task(play(server, ChatServer(Answer(body=ends(""), delay=60)))) for _ in range(4)]
        async with asyncio.timeout(30):
            while (await server.status())["live"] < 4:
                await asyncio.sleep(0.05)
        began = time.monotonic()
        await agent.abort(None)
        assert time.monotonic() - began < 2
        assert {result["agentenv"]["end_reason"] for result in await asyncio.gather(*playing)} == {"aborted"}
        await server.empty(5.0)


async def test_a_crowd_waits_for_room_in_turn() -> None:
    """64 rollouts and room for 4: all scored, none refused."""
    async with ServerProcess(capacity=4).serve() as server:
        results = await asyncio.gather(
            *(play(server, ChatServer(adds(5), ends("5"), ends("5")), reset_timeout=100.0) for _ in range(64))
        )
        assert [result["reward"] for result in results] == [0.5] * 64
        await server.empty()
