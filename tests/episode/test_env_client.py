"""An env's card, extensions and data plane, as servers have them, and as they shouldn't."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.episode.env_client import EnvClient, EnvRefused
from agent_env.episode.http import BadReply

from .doubles import FakeInstance
from .servers import request_read

CARD = "/.well-known/agent-env.json"


class Server:
    """Answers by `"VERB path"` with (status, JSON or bytes); 404 for what isn't there."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _, body = (await request_read(reader)).partition(b"\r\n\r\n")
            what = head.split(b" HTTP/1.1")[0].decode()
            self.asked.append((what, json.loads(body) if body else None))
            status, answer = self.answers.get(what, (404, {}))
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data))
            await writer.drain()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[EnvClient]:
    instance = FakeInstance(EnvSpec("fake", Path("/"), "0" * 64), 0, server.serve)
    client = EnvClient(instance)
    yield client
    client.close()
    await instance.kill()


def extension(**params: Any) -> dict[str, Any]:
    return {"uri": "urn:x", "params": params}


@pytest.mark.parametrize(
    ("card", "path"),
    [
        ({}, "/mcp"),
        ({"additionalInterfaces": None}, "/mcp"),
        ({"additionalInterfaces": "x"}, "/mcp"),
        ({"additionalInterfaces": [1, {"transport": "mcp", "url": ""}]}, "/mcp"),
        (
            {"additionalInterfaces": [{"transport": "a2a", "url": "/a"}, {"transport": "mcp", "url": "/m/c/p"}]},
            "/m/c/p",
        ),
    ],
)
async def test_the_card_says_where_mcp_is(server: Server, client: EnvClient, card: Any, path: str) -> None:
    server.answers[f"GET {CARD}"] = (200, card)
    assert await client.mcp_path() == path


async def test_a_card_is_read_once_even_where_there_is_none(server: Server, client: EnvClient) -> None:
    assert await client.card() is None
    assert await client.mcp_path() == "/mcp"
    assert await client.extension("urn:x") is None
    assert server.asked == [(f"GET {CARD}", None)]


@pytest.mark.parametrize("answer", [(500, {}), (200, []), (200, b"<html>"), (200, b""), (200, b'{"a": NaN}')])
async def test_a_card_that_is_none_is_the_servers_fault(server: Server, client: EnvClient, answer: Any) -> None:
    server.answers[f"GET {CARD}"] = answer
    with pytest.raises(BadReply):
        await client.card()


@pytest.mark.parametrize("url", ["http://elsewhere/mcp", "mcp", "/a b", "/a\r\nX: y", "/é", 7])
async def test_a_card_leads_to_paths_of_the_same_server_only(server: Server, client: EnvClient, url: Any) -> None:
    server.answers[f"GET {CARD}"] = (200, {"additionalInterfaces": [{"transport": "mcp", "url": url}]})
    with pytest.raises(BadReply, match="path"):
        await client.mcp_path()


@pytest.mark.parametrize("capabilities", [None, {}, {"extensions": None}, {"extensions": [1, {}]}, "x"])
async def test_an_extension_that_is_not_listed_is_none(server: Server, client: EnvClient, capabilities: Any) -> None:
    server.answers[f"GET {CARD}"] = (200, {"capabilities": capabilities})
    assert await client.extension("urn:x") is None


@pytest.mark.parametrize(
    ("listed", "method", "asked", "sent"),
    [
        (extension(methods={"go": {"endpoint": "/own"}, "stop": {}}, endpoint="/all"), None, "POST /own", True),
        (extension(methods={"go": {}}, endpoint="/all"), None, "POST /all", True),
        (extension(methods={"go": {}}), None, "POST /agentenv/ext/go", True),
        (extension(methods={"go": {}, "stop": {}}), "stop", "POST /agentenv/ext/stop", True),
        (extension(endpoint="/all"), None, "POST /all", True),
        (extension(methods={"go": {"method": "put"}}), None, "PUT /agentenv/ext/go", True),
        (extension(methods={"go": {"method": "GET"}}), None, "GET /agentenv/ext/go?a=1&b=x+y", False),
    ],
)
async def test_an_extension_is_called_where_and_how_the_card_says(
    server: Server, client: EnvClient, listed: Any, method: str | None, asked: str, sent: bool
) -> None:
    args = {"a": 1, "b": "x y"}
    server.answers[asked] = (200, {"done": True})
    assert await client.invoke(listed, args, method) == {"done": True}
    assert server.asked == [(asked, args if sent else None)]


async def test_an_extension_without_any_method_is_refused(client: EnvClient) -> None:
    for listed in (extension(), {"uri": "urn:x"}, {"uri": "urn:x", "params": {"methods": []}}):
        with pytest.raises(EnvRefused, match="urn:x"):
            await client.invoke(listed, {})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((400, {"ok": False, "error": {"code": "invalid_params", "message": "no such day"}}), "400: no such day"),
        ((500, {"error": "broken"}), '500: {"error": "broken"}'),
        ((404, b"not here"), "404: not here"),
    ],
)
async def test_a_refusing_extension_says_why(server: Server, client: EnvClient, answer: Any, why: str) -> None:
    server.answers["POST /agentenv/ext/go"] = answer
    with pytest.raises(EnvRefused) as refused:
        await client.invoke(extension(methods={"go": {}}), {})
    assert str(refused.value) == f"extension urn:x: the env answered {why}"


@pytest.mark.parametrize(
    ("reply", "error", "why"),
    [
        ({"error": {"code": -32601, "message": "method_not_found"}}, EnvRefused, "data/reset: method_not_found"),
        (
            {"error": {"code": -32000, "message": "x", "data": {"code": "reset_failed", "detail": "disk full"}}},
            EnvRefused,
            "data/reset: x: reset_failed: disk full",
        ),
        ({"error": "no"}, EnvRefused, "data/reset: 'no'"),
        ({}, BadReply, "no JSON-RPC reply"),
        ([], BadReply, "no JSON-RPC reply"),
        (b"oops", BadReply, "can't be read"),
    ],
)
async def test_a_refused_data_operation_says_why(
    server: Server, client: EnvClient, reply: Any, error: type[Exception], why: str
) -> None:
    server.answers = {f"GET {CARD}": (200, {"url": "/data"}), "POST /data": (200, reply)}
    with pytest.raises(error) as refused:
        await client.reset_data()
    assert why in str(refused.value)


async def test_a_server_without_a_card_has_no_data_plane(client: EnvClient) -> None:
    with pytest.raises(EnvRefused, match="no card"):
        await client.reset_data()
