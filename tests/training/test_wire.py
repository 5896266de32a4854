"""The chat's connections: one write a request, TLS, connections that ended, answers that come before their time."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_env.training import chat as chat_module
from agent_env.training.chat import ChatSession
from agent_env.training.history import History
from agent_env.training.types import EndReason, RolloutFailed
from tests.training.chat_server import ChatServer, completion
from tests.training.row import PROMPT

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
BODY = json.dumps(completion("hello")).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@asynccontextmanager
async def served(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=tls)
    try:
        scheme = "https" if tls else "http"
        yield f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}/sessions/x"
    finally:
        server.close()


async def complete(session: ChatSession) -> str:
    return (await session.complete(History(PROMPT), timeout=10)).text


async def test_a_request_is_one_write() -> None:
    first = b""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        first = await reader.read(1 << 16)  # what one segment brought
        writer.write(ANSWER)
        writer.close()

    async with served(handler) as url:
        session = ChatSession(url, tools=[])
        assert await complete(session) == "hello"
        await session.close()
    head, _, body = first.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /sessions/x/v1/chat/completions HTTP/1.1\r\n")
    assert json.loads(body)["messages"] == list(PROMPT)


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        await reader.read(1 << 16)
        writer.write(ANSWER)  # keeps the connection, as it says, and ends it a moment later
        await writer.drain()
        writer.close()

    async with served(handler) as url:
        session = ChatSession(url, tools=[])
        assert await complete(session) == "hello"
        await asyncio.sleep(0.1)
        assert await complete(session) == "hello"
        await session.close()
    assert connections == 2


async def test_a_kept_connection_is_used_again() -> None:
    server = ChatServer(completion("hello"))
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await server.handle(reader, writer)

    async with served(handler) as url:
        session = ChatSession(url, tools=[])
        assert [await complete(session) for _ in range(3)] == ["hello"] * 3
        await session.close()
    assert connections == 1


async def test_an_answer_that_comes_before_the_request_was_read_is_the_answer() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.transport.abort()

    async with served(handler) as url:
        session = ChatSession(url, tools=[], request_kwargs={"padding": "x" * (8 << 20)})
        with pytest.raises(RolloutFailed, match="413") as failed:
            await complete(session)
        await session.close()
    assert failed.value.reason is EndReason.MODEL_ERROR


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of localhost, with its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl isn't installed")
    file = tmp_path / "both.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*made, "-keyout", tmp_path / "key", "-out", tmp_path / "crt"], check=True, capture_output=True)
    file.write_text((tmp_path / "key").read_text() + (tmp_path / "crt").read_text())
    return file


def tls_of(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_https_with_a_trusted_certificate(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "tls_context", lambda: ssl.create_default_context(cafile=str(certificate)))
    server = ChatServer(completion("hello"))
    async with served(server.handle, tls_of(certificate)) as url:
        session = ChatSession(url, tools=[])
        assert [await complete(session) for _ in range(2)] == ["hello"] * 2
        await session.close()


async def test_a_certificate_that_nobody_vouches_for_is_named(certificate: Path) -> None:
    server = ChatServer(completion("hello"))
    async with served(server.handle, tls_of(certificate)) as url:
        session = ChatSession(url, tools=[])
        with pytest.raises(RolloutFailed, match="certificate verify failed") as failed:
            await session.complete(History(PROMPT), timeout=600)  # it is not tried again
        await session.close()
    assert failed.value.reason is EndReason.MODEL_ERROR
    assert server.requests == []
