"""A trainer's whole step on one event loop."""

from __future__ import annotations

import asyncio
import gc
import resource
from collections import Counter
from collections.abc import Iterator

import pytest

from agent_env.training.miles import agent
from tests.training.chat_server import END, ChatServer, call, completion
from tests.training.env_server import EnvServer
from tests.training.row import PROMPT, metadata

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SCRIPT = [completion(None, call("add", {"x": 1})), END]


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Both ends of two sockets a rollout, in one process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < 8192:
        pytest.fail(f"1,024 rollouts and their servers need 8,192 descriptors in one process; the limit is {hard}")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def scripted() -> ChatServer:
    """Answers by how long the history is, since a thousand chats share it."""
    return ChatServer(answer=lambda request, place: SCRIPT[min(1, (len(request["messages"]) - 2) // 2)])


async def test_1024_rollouts_at_once_have_no_error() -> None:
    """Case 121: with a session server that is slow to accept."""
    env, chat = EnvServer(), scripted()
    chat.accept_delay = 0.2
    async with env.serve(), chat.serve():
        row = {"base_url": chat.base_url, "prompt": list(PROMPT), "request_kwargs": {}}
        given = metadata(env.url, reset_timeout=300.0, call_timeout=300.0, model_timeout=300.0)
        results = await asyncio.gather(*(agent.run(**row, metadata=given) for _ in range(1024)))
    ends = Counter((result["agentenv"]["end_reason"], result["agentenv"]["error"]) for result in results)
    assert ends == {("end_turn", None): 1024}
    assert env.live == 0
    assert len(env.sessions) == 1024
    assert len(chat.requests) == 2048


async def test_nothing_is_kept_of_a_rollout() -> None:
    env, chat = EnvServer(), scripted()
    chat.recording = False
    async with env.serve(), chat.serve():
        row = {"base_url": chat.base_url, "prompt": list(PROMPT), "request_kwargs": {}, "metadata": metadata(env.url)}

        async def rollouts(count: int) -> int:
            """Play so many; the objects that there are after them."""
            for _ in range(count // 32):
                await asyncio.gather(*(agent.run(**row) for _ in range(32)))
            await asyncio.sleep(0.5)
            env.forget()
            gc.collect()
            return len(gc.get_objects())

        before = await rollouts(192)
        after = await rollouts(640)
    assert not agent._running
    assert after - before < 640, "an object or more is kept of every rollout"
