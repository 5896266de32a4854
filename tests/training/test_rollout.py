"""The whole loop against scripted doubles: every end reason of the failure contract."""

from __future__ import annotations

import json
from typing import Any

from agent_env.training.miles import agent
from tests.training.doubles import (
    PROMPT,
    TOOLS,
    ChatServer,
    EnvServer,
    call,
    completion,
    histories,
    metadata,
    openai_tools,
)


async def play(
    env: EnvServer, chat: ChatServer, *, extra: dict[str, Any] | None = None, **settings: Any
) -> dict[str, Any]:
    """One rollout through `agent.run` on the two doubles."""
    async with env.serve(), chat.serve():
        result = await agent.run(
            base_url=chat.base_url,
            prompt=list(PROMPT),
            request_kwargs={"temperature": 1.1, "top_k": -1},
            metadata={**metadata(env.url, **settings), **(extra or {})},
        )
        json.dumps(result, allow_nan=False)
    return result


async def test_end_turn_scores_the_episode() -> None:
    env = EnvServer(reward=0.75)
    chat = ChatServer(completion(None, call("add", {"x": 5})), completion("done", call("end_turn", {"response": "5"})))
    result = await play(env, chat)
    assert result["agentenv"]["error"] is None
    assert result["reward"] == 0.75
    assert result["agentenv"]["end_reason"] == "end_turn"
    assert result["agentenv"]["status"] == "scored"
    assert env.sessions[0].calls == [("add", {"x": 5}), ("end_turn", {"response": "5"})]
    first, second = chat.requests
    assert first["messages"] == list(PROMPT)
    assert first["tools"] == second["tools"] == openai_tools(TOOLS)
    assert first["temperature"] == 1.1
    assert first["top_k"] == -1
    assert histories(chat)[1][2:] == [
        {"role": "assistant", "content": None, "tool_calls": [call("add", {"x": 5})]},
        {"role": "tool", "tool_call_id": "call_0", "content": "total 5"},
    ]
