"""What the session-server tests share: chats, tools, a policy that says what it is told, a client without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from agent_env.training.policies import Call, Policy, Reply
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import Engine, ScriptedEngine

TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "go"}


def says(*replies: Reply) -> Policy:
    """A policy that gives these replies, one a request, whatever the chat says."""
    script: Iterator[Reply] = iter(replies)
    return lambda messages, tools, request: next(script)


def call(arguments: str = '{"x":  1}', name: str = "look", content: str = "") -> Reply:
    return Reply(content=content, calls=(Call(name, arguments),))


@asynccontextmanager
async def session(engine: Engine | Policy, **options: Any) -> AsyncIterator[Chat]:
    """One open session of a server that this engine, or this policy, plays."""
    ready = engine if hasattr(engine, "complete") else ScriptedEngine(engine)  # type: ignore[arg-type]
    transport = httpx.ASGITransport(build_session_app({"test": ready}, **options))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        opened = await client.post("/sessions", json={})
        yield Chat(client, f"/sessions/{opened.json()['session_id']}")
    await ready.close()


class Chat:
    """A client of one session that keeps no history: tests say what they send."""

    def __init__(self, client: httpx.AsyncClient, path: str) -> None:
        self.client = client
        self.path = path

    async def send(self, *messages: Mapping[str, Any], **fields: Any) -> httpx.Response:
        body = {"messages": list(messages), "tools": [TOOL]} | fields
        return await self.client.post(f"{self.path}/v1/chat/completions", json=body)

    async def turn(self, *messages: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        """The message of a request that must succeed."""
        answer = await self.send(*messages, **fields)
        assert answer.status_code == 200, answer.text
        message: dict[str, Any] = answer.json()["choices"][0]["message"]
        return message

    async def seen(self) -> dict[str, Any]:
        recorded: dict[str, Any] = (await self.client.get(self.path)).json()
        return recorded


def tool_result(message: Mapping[str, Any], content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": content}
