"""A task as an MCP server, over plain HTTP requests; the official client's turn is in tests/conformance."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.openenv.doubles import adding_app, serving

PATH = "/adding/all/3/mcp"


async def post(http: httpx.AsyncClient, method: str, session: str | None = None, **params: Any) -> httpx.Response:
    headers = {"mcp-session-id": session} if session else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await http.post(PATH, json=message, headers=headers)


async def opened(http: httpx.AsyncClient) -> str:
    reply = await post(http, "initialize", protocolVersion="2025-03-26")
    assert reply.json()["result"]["protocolVersion"] == "2025-03-26"
    return reply.headers["mcp-session-id"]


async def test_an_episode_from_initialize_to_reward(http, world):
    reply = await post(http, "initialize", protocolVersion="2099-01-01", capabilities={}, clientInfo={})
    result = reply.json()["result"]
    assert result["protocolVersion"] == "2025-06-18"
    assert result["instructions"] == "You add.\n\ntalk: turn 0"
    assert result["serverInfo"]["name"] == "Adding"
    session = reply.headers["mcp-session-id"]
    noted = await http.post(PATH, json={"jsonrpc": "2.0", "method": "x"}, headers={"mcp-session-id": session})
    assert (noted.status_code, noted.content) == (202, b"")
    assert (await post(http, "ping", session)).json()["result"] == {}
    tools = (await post(http, "tools/list", session)).json()["result"]["tools"]
    assert tools[0].keys() == {"name", "description", "inputSchema"}
    added = (await post(http, "tools/call", session, name="add", arguments={"n": 4})).json()["result"]
    assert added == {"content": [{"type": "text", "text": "4.0"}], "isError": False}
    failed = (await post(http, "tools/call", session, name="fail", arguments={"n": 4})).json()["result"]
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "it failed")
    following = (await post(http, "tools/call", session, name="end_turn")).json()["result"]
    assert following["content"][0]["text"] == "talk: turn 1"
    ended = (await post(http, "tools/call", session, name="end_turn")).json()["result"]
    assert ended["structuredContent"] == {"done": True, "reward": 1.0, "scores": {"sum": 1.0}}
    assert "Reward: 1" in ended["content"][0]["text"]
    late = (await post(http, "tools/call", session, name="add", arguments={"n": 1})).json()["error"]
    assert late["data"] == {"reason": "no_episode"}
    assert (await http.delete(PATH, headers={"mcp-session-id": session})).status_code == 204
    assert (await http.delete(PATH, headers={"mcp-session-id": session})).status_code == 404
    assert (len(world.started), len(world.closed)) == (1, 1)


async def test_what_isnt_a_request_of_a_session_is_refused(http, world):
    for body in (b"{", b"[]", b"3"):
        assert (await http.post(PATH, content=body)).status_code == 400
    assert (await post(http, "tools/list")).status_code == 400
    assert (await post(http, "tools/list", "nobody")).status_code == 404
    assert (await http.get(PATH)).status_code == 405
    assert world.started == []
    session = await opened(http)
    assert (await post(http, "resources/list", session)).json()["error"]["code"] == -32601
    assert (await post(http, "tools/call", session, name="absent")).json()["error"]["code"] == -32602
    assert (await post(http, "tools/call", session, name="add", arguments=3)).json()["error"]["code"] == -32602


async def test_a_full_server_and_a_failed_deploy_are_errors_that_hold_nothing(http, world):
    world.fail_deploys = True
    assert (await post(http, "initialize")).json()["error"]["data"] == {"reason": "deploy_failed"}
    world.fail_deploys = False
    await opened(http)
    full = await post(http, "initialize")
    assert full.json()["error"]["message"].startswith("Server at capacity")
    assert "mcp-session-id" not in full.headers


@pytest.mark.parametrize(
    "path", ["/other/all/0/mcp", "/adding/nowhere/0/mcp", "/adding/all/4/mcp", "/adding/all/-1/mcp"]
)
async def test_an_unknown_task_is_404(world, path):
    async with serving(adding_app(world)) as address, httpx.AsyncClient(base_url=f"http://{address}") as http:
        assert (await http.post(path, json={})).status_code == 404
        assert (await http.delete(path)).status_code == 404


async def test_a_client_that_leaves_initialize_leaves_no_env(http, world):
    world.deploy_seconds = 60
    with pytest.raises(httpx.ReadTimeout):
        await http.post(PATH, json={"jsonrpc": "2.0", "id": 1, "method": "initialize"}, timeout=0.2)
    await world.gone()
    world.deploy_seconds = 0
    await opened(http)
