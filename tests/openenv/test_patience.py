"""A client that sends its request's head slowly is cut off; one that waits for an answer is not."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from agent_env.openenv import patience

pytestmark = pytest.mark.integration

LIMIT = 0.5


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers after three times the limit; echoes on a WebSocket."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})
    else:
        await asyncio.sleep(3 * LIMIT)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(patience, "HEAD_SECONDS", LIMIT)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, lifespan="off", log_config=None, http=patience.HeadTimeoutProtocol)
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # type: ignore[method-assign]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        await task


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /ws HTTP/1.1\r\nUpgrade: websocket\r\n"])
async def test_half_a_head_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    async with serving(monkeypatch) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        for drop in (b"G", b"E", b"T"):  # more of it, drop by drop, does not help: the method, or a header's name
            await asyncio.sleep(LIMIT / 5)
            writer.write(drop)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_a_request_that_is_being_answered_is_waited_for_and_the_next_head_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(monkeypatch) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert await reader.readexactly(2) == b"ok"
        writer.write(b"GET / HT")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_a_websocket_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(monkeypatch) as port, connect(f"ws://127.0.0.1:{port}/ws", proxy=None) as session:
        await asyncio.sleep(3 * LIMIT)
        await session.send("still here")
        assert await asyncio.wait_for(session.recv(), 20) == "still here"
