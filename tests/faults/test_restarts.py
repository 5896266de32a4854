"""A server that is restarted under a whole step of rollouts, again and again."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from typing import Any

import pytest

from agent_env.training.miles import agent
from tests.faults.doubles import ServerProcess
from tests.faults.test_matrix import adds, ends, row
from tests.training.chat_server import ChatServer
from tests.training.row import PROMPT

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

ROLLOUTS = 64
SCRIPT = [adds(1), adds(2), ends("3"), adds(3), adds(4), ends("10")]
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)


class Chats:
    """A session server of each rollout's own, which takes a random time to answer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked = 0

    def make(self) -> ChatServer:
        async def answer(request: dict[str, Any], place: int) -> dict[str, Any]:
            self.asked += 1
            await asyncio.sleep(random.uniform(0, self.seconds))
            return SCRIPT[place]

        return ChatServer(answer=answer)

    async def reach(self, asked: int) -> None:
        while self.asked < asked:
            await asyncio.sleep(0.02)


async def play(chat: ChatServer, url: str) -> dict[str, Any]:
    async with chat.serve():
        given = row(url, 0, recover=len(SIGNALS), reset_timeout=120.0, call_timeout=120.0)
        return await agent.run(base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=given)


async def test_a_rolling_restart_loses_no_rollout() -> None:
    """64 rollouts in mid-episode, three restarts: all scored, and no session sees a difference."""
    calm = Chats(0.0)
    undisturbed = calm.make()
    async with ServerProcess(capacity=ROLLOUTS).serve() as server:
        assert (await play(undisturbed, server.url))["reward"] == 1.0
        chats = Chats(2.0)
        sessions = [chats.make() for _ in range(ROLLOUTS)]
        playing = asyncio.gather(*(play(session, server.url) for session in sessions))
        for place, number in enumerate(SIGNALS, start=1):
            await chats.reach(ROLLOUTS * (2 * place - 1))
            await server.stop(number)
            await server.start()
        results = await playing
        await server.empty()
    ends_ = Counter(
        (result["agentenv"]["end_reason"], result["reward"], result["agentenv"]["error"]) for result in results
    )
    assert ends_ == {("end_turn", 1.0, None): ROLLOUTS}
    replays = Counter(result["agentenv"]["recoveries"] for result in results)
    assert replays[0] < ROLLOUTS / 2, "the restarts came too late to disturb anybody"
    for session in sessions:
        assert session.requests == undisturbed.requests
