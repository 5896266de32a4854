"""A session server that answers on script, and the completions that it answers with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


def call(name: Any, arguments: Any = "{}", call_id: Any = "call_0") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str | None) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def message(content: str | None = None, *calls: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls) or None, **extra}


def completion(
    content: str | None = None,
    *calls: dict[str, Any],
    finish: str | None = None,
    tokens: int | None = 100,
    **extra: Any,
) -> dict[str, Any]:
    """A chat completion with one message."""
    choice = {
        "index": 0,
        "message": message(content, *calls, **extra),
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [choice],
        **({} if tokens is None else {"usage": {"total_tokens": tokens}}),
    }


END = completion(None, call("end_turn", {"response": "done"}, "call_end"))
"""The reply that ends the turn."""


@dataclass(frozen=True)
class Answer:
    """An HTTP answer that is no plain completion."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int | None = None
    """Close the connection after so many bytes of the body."""


@dataclass(frozen=True)
class Drop:
    """Take the request, answer nothing and close."""


Scripted = dict[str, Any] | Answer | Drop
Script = Callable[[dict[str, Any], int], Scripted | Awaitable[Scripted]]


class ChatServer:
    """A session server that answers the n-th request with the n-th of its script (the last one for ever), or with
    what its function makes of the request. Every request is recorded, while `recording`."""

    def __init__(self, *script: Scripted, answer: Script | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.recording = True
        self.accept_delay = 0.0
        self._script = list(script)
        self._answer = answer
        self._tasks: set[asyncio.Task[Any]] = set()
        self.base_url = ""

    async def _next(self, request: dict[str, Any], body: bytes) -> Scripted:
        place = len(self.requests)
        if self.recording:
            self.requests.append(request)
            self.bodies.append(body)
        if self._answer is None:
            return self._script[min(place, len(self._script) - 1)]
        answer = self._answer(request, place)
        return await answer if isinstance(answer, Awaitable) else answer

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await asyncio.sleep(self.accept_delay)
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        assert head.startswith("POST ")
        assert head.split(" ")[1].endswith("/v1/chat/completions")
        length = next(
            int(v) for k, _, v in (line.partition(":") for line in head.split("\r\n")) if k.lower() == "content-length"
        )
        body = await reader.readexactly(length)
        answer = await self._next(json.loads(body), body)
        if isinstance(answer, Drop):
            return False
        if isinstance(answer, dict):
            answer = Answer(body=answer)
        await asyncio.sleep(answer.delay)
        content = json.dumps(answer.body).encode() if isinstance(answer.body, dict) else answer.body
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} Status", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content[: answer.cut])
        await writer.drain()
        return answer.cut is None

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ChatServer]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0, backlog=2048)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sessions/{'0f' * 16}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def histories(chat: ChatServer) -> list[list[dict[str, Any]]]:
    """The messages of each request."""
    return [request["messages"] for request in chat.requests]
