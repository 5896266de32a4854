"""What each address answers, to requests that never saw a socket."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent_env.env.app import App
from agent_env.env.http1 import Request, Response
from agent_env.env.service import Service
from tests.env.doubles import Shelf

Ask = Callable[..., Awaitable[Response]]


@pytest.fixture
def ask() -> Ask:
    app = App(Service(Shelf()))

    async def ask(body: Any = b"", path: str = "/mcp", method: str = "POST", **headers: str) -> Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await app.handle(
            Request(method, path, {k.replace("_", "-"): v for k, v in headers.items()}, content, True)
        )

    return ask


def message(method: str, params: Any = None, ident: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": ident, "method": method, **({} if params is None else {"params": params})}


async def opened(ask: Ask) -> str:
    return (await ask(message("initialize", {}))).headers["Mcp-Session-Id"]


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2099-01-01", "2025-11-25"),
        (None, "2025-11-25"),
        ([], "2025-11-25"),
    ],
)
async def test_initialize_agrees_on_a_version_and_opens_a_session(ask: Ask, asked: Any, got: str) -> None:
    answer = await ask(message("initialize", {"protocolVersion": asked}))
    result = json.loads(answer.body)["result"]
    assert result["protocolVersion"] == got
    assert result["serverInfo"] == {"name": "shelf", "version": "1"}
    assert len(answer.headers["Mcp-Session-Id"]) == 32


async def test_a_session_lives_from_initialize_to_delete(ask: Ask) -> None:
    session = await opened(ask)
    assert (await ask(message("notifications/initialized"), mcp_session_id=session)).status == 200
    assert (await ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, mcp_session_id=session)).status == 202
    assert (await ask({"jsonrpc": "2.0", "id": 1, "result": {}}, mcp_session_id=session)).status == 202
    assert json.loads((await ask(message("ping"), mcp_session_id=session)).body)["result"] == {}
    assert (await ask(method="DELETE", mcp_session_id=session)).status == 200
    assert (await ask(message("ping"), mcp_session_id=session)).status == 404
    assert (await ask(method="DELETE", mcp_session_id=session)).status == 404


async def test_nothing_but_initialize_goes_without_a_session(ask: Ask) -> None:
    for method in ("ping", "tools/list", "tools/call"):
        answer = await ask(message(method))
        assert answer.status == 400
        assert json.loads(answer.body)["error"] == {"code": -32600, "message": "Missing session ID"}


async def test_the_oldest_of_too_many_sessions_gives_way(ask: Ask) -> None:
    sessions = [await opened(ask) for _ in range(65)]
    assert (await ask(message("ping"), mcp_session_id=sessions[0])).status == 404
    assert (await ask(message("ping"), mcp_session_id=sessions[1])).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0","jsonrpc":"2.0"}', 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b'{"id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"put","arguments":[]}}', 200, -32602),
    ],
)
async def test_a_malformed_message_is_an_error_of_its_code(ask: Ask, body: bytes, status: int, code: int) -> None:
    answer = await ask(body, mcp_session_id=await opened(ask))
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (status, code)


@pytest.mark.parametrize("ident", [0, -1, "a", ""])
async def test_an_answer_carries_the_id_as_it_came(ask: Ask, ident: Any) -> None:
    answer = await ask(message("ping", ident=ident), mcp_session_id=await opened(ask))
    assert json.loads(answer.body)["id"] == ident


async def test_missing_and_null_arguments_are_none_at_all(ask: Ask) -> None:
    session = await opened(ask)
    for params in ({"name": "peek"}, {"name": "peek", "arguments": None}, {"name": "peek", "arguments": {}}):
        answer = await ask(message("tools/call", params), mcp_session_id=session)
        assert json.loads(answer.body)["result"] == {
            "content": [{"type": "text", "text": '{"items":[]}'}],
            "isError": False,
            "structuredContent": {"items": []},
        }


async def test_an_unknown_protocol_version_is_refused(ask: Ask) -> None:
    session = await opened(ask)
    assert (await ask(message("ping"), mcp_session_id=session, mcp_protocol_version="2025-06-18")).status == 200
    assert (await ask(message("ping"), mcp_session_id=session, mcp_protocol_version="1999-01-01")).status == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://localhost:3000", 200), ("http://127.0.0.1", 200), ("http://[::1]:80", 200), ("http://a.example", 403),
     ("null", 403), ("http://localhost.a.example", 403)],
)  # fmt: skip
async def test_web_pages_of_elsewhere_are_refused(ask: Ask, origin: str, status: int) -> None:
    assert (await ask(path="/.well-known/agent-env.json", method="GET", origin=origin)).status == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/mcp", 405),
        ("GET", "/agentenv", 405),
        ("POST", "/.well-known/agent-env.json", 405),
        ("GET", "/agentenv/ext/load", 405),
        ("GET", "/health", 404),
        ("GET", "/", 404),
        ("POST", "/agentenv/ext/", 404),
    ],
)
async def test_other_methods_and_addresses_are_refused(ask: Ask, method: str, path: str, status: int) -> None:
    assert (await ask(method=method, path=path)).status == status


@pytest.mark.parametrize(
    ("body", "code", "name"),
    [
        (b"{", -32700, "parse_error"),
        (b"[]", -32600, "invalid_request"),
        (b'{"jsonrpc":"2.0","id":1}', -32600, "invalid_request"),
        (b'{"jsonrpc":"2.0","id":1,"method":"data/drop"}', -32601, "method_not_found"),
        (b'{"jsonrpc":"2.0","id":1,"method":"data/add","params":[]}', -32602, "invalid_request"),
        (b'{"jsonrpc":"2.0","id":1,"method":"data/add","params":{"parts":[]}}', -32602, "invalid_request"),
    ],
)
async def test_the_data_plane_always_answers_200_with_the_error_inside(
    ask: Ask, body: bytes, code: int, name: str
) -> None:
    answer = await ask(body, path="/agentenv")
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["data"]["code"]) == (200, code, name)


async def test_a_failing_data_operation_says_which(ask: Ask) -> None:
    text = [{"kind": "text", "text": "break"}]
    assert json.loads((await ask(message("data/add", {"parts": text}), path="/agentenv")).body)["result"] == {}
    error = json.loads((await ask(message("data/get"), path="/agentenv")).body)["error"]
    assert (error["code"], error["data"]) == (-32000, {"code": "get_failed", "detail": "no data today"})


@pytest.mark.parametrize(
    ("body", "status", "code", "applied"),
    [
        (b"{", 400, "invalid_params", "none"),
        (b"[]", 400, "invalid_params", "none"),
        (b"", 400, "invalid_params", "none"),
        (b'{"items":["bad"]}', 400, "invalid_params", "none"),
        (b'{"items":["worse"]}', 500, "extension_failed", "unknown"),
    ],
)
async def test_a_failing_extension_says_whether_it_was_applied(
    ask: Ask, body: bytes, status: int, code: str, applied: str
) -> None:
    answer = await ask(body, path="/agentenv/ext/load")
    found = json.loads(answer.body)
    assert (answer.status, found["ok"]) == (status, False)
    assert (found["error"]["code"], found["error"]["applied"]) == (code, applied)
