"""One rollout on the scripted doubles, and what is asked of it."""

from __future__ import annotations

import json
from typing import Any

from agent_env.training.miles import agent
from tests.training.chat_server import ChatServer, histories
from tests.training.env_server import EnvServer
from tests.training.row import PROMPT, metadata


async def play(
    env: EnvServer, chat: ChatServer, *, extra: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """One rollout through `agent.run` on the two doubles. Every one must give plain JSON and close its env."""
    async with env.serve(), chat.serve():
        result = await agent.run(
            base_url=chat.base_url,
            prompt=list(PROMPT),
            request_kwargs={"temperature": 1.1, "top_k": -1},
            metadata={**metadata(env.url, **settings), **(extra or {})},
        )
        json.dumps(result, allow_nan=False)
    assert env.live == 0
    return result


def outcome(result: dict[str, Any]) -> tuple[str, str, float]:
    return result["agentenv"]["status"], result["agentenv"]["end_reason"], result["reward"]


def results(chat: ChatServer) -> list[dict[str, Any]]:
    """The tool messages of the last request."""
    return [message for message in histories(chat)[-1] if message["role"] == "tool"]
