"""OpenAI's own client against a served session, as most agents would use it."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from agent_env.loopback import serving
from agent_env.training.policies import Refusal, Reply
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine
from tests.session_server.doubles import TOOL, USER, call, says, tool_result

pytestmark = pytest.mark.integration


async def open_session(url: str) -> str:
    async with httpx.AsyncClient() as client:
        return str((await client.post(f"{url}/sessions")).json()["session_id"])


async def test_openais_client_plays_a_session() -> None:
    app = build_session_app({"test": ScriptedEngine(says(call(), Reply("done")))}, strict=True)
    async with serving(app) as url:
        base = f"{url}/sessions/{await open_session(url)}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            tools: Any = [TOOL]
            first = await client.chat.completions.create(model="default", messages=[USER], tools=tools)
            message = first.choices[0].message.model_dump(exclude_unset=True)
            assert first.choices[0].message.tool_calls is not None
            history: Any = [USER, message, tool_result(message)]
            second = await client.chat.completions.create(model="default", messages=history, tools=tools)
    assert second.choices[0].message.content == "done"
    assert second.choices[0].finish_reason == "stop"


async def test_openais_client_reads_the_streamed_chunk() -> None:
    app = build_session_app({"test": ScriptedEngine(says(call()))})
    async with serving(app) as url:
        base = f"{url}/sessions/{await open_session(url)}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            tools: Any = [TOOL]
            messages: Any = [USER]
            stream = await client.chat.completions.create(model="m", messages=messages, tools=tools, stream=True)
            chunks = [chunk async for chunk in stream]
    assert len(chunks) == 1
    calls = chunks[0].choices[0].delta.tool_calls
    assert calls is not None
    assert calls[0].function is not None
    assert calls[0].function.name == "look"


async def test_openais_client_sees_errors_by_their_status() -> None:
    def policy(messages: Any, tools: Any, request: Any) -> Reply:
        raise Refusal(503, {"error": {"message": "busy"}})

    async with serving(build_session_app({"test": ScriptedEngine(policy)})) as url:
        base = f"{url}/sessions/{await open_session(url)}/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            messages: Any = [USER]
            with pytest.raises(openai.InternalServerError, match="busy"):
                await client.chat.completions.create(model="m", messages=messages)
        base = f"{url}/sessions/nope/v1"
        async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError) as caught:
                await client.chat.completions.create(model="m", messages=messages)
    assert "session not found" in caught.value.response.text
