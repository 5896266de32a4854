"""OpenEnv's JSON-RPC over HTTP, over a WebSocket of its own, and inside /ws; and the sessions made with it."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from tests.openenv.doubles import adding_app, ask, call, open_ws, serving


@pytest.fixture
async def http(address):
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=20) as client:
        yield client


@pytest.fixture
async def hasty(world):
    """A server whose HTTP sessions live for a second unattended."""
    async with serving(adding_app(world, max_concurrent_envs=2, session_timeout=1.0)) as address:
        yield address


async def rpc(http, method: str, **params) -> dict:
    reply = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    assert reply.status_code == 200
    body = reply.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
    assert ("result" in body) != ("error" in body)
    return body


async def created(http) -> str:
    return (await rpc(http, "openenv/session/create"))["result"]["session_id"]


@pytest.mark.parametrize(
    ("body", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"", -32700, None),
        (b"\xff", -32700, None),
        (b'{"a": NaN}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"{}", -32600, None),
        (b"[]", -32600, None),
        (b"3", -32600, None),
        (b'{"jsonrpc": "1.0", "id": 3, "method": "tools/list"}', -32600, 3),
        (b'{"jsonrpc": "2.0", "id": "x", "method": 3}', -32600, "x"),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "extra": 1}', -32600, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}', -32601, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}', -32602, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": 3}}', -32602, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"session_id": "nobody"}}', -32602, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"session_id": 3}}', -32602, 1),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/session/close", "params": {}}', -32602, 1),
    ],
)
async def test_a_bad_request_is_200_with_its_error(http, world, body, code, request_id):
    reply = await http.post("/mcp", content=body)
    assert reply.status_code == 200
    assert (reply.json()["error"]["code"], reply.json()["id"]) == (code, request_id)
    assert world.started == []


async def test_a_socket_and_requests_share_a_session(http, address, world):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset", {"split": "test", "index": 0})
        assert (await rpc(http, "tools/list", session_id=session_id))["result"]["tools"][0]["name"] == "add"
        called = await rpc(http, "tools/call", session_id=session_id, name="add", arguments={"n": 2})
        assert called["result"]["data"] == "2.0"
        await call(socket, "add", n=3)
        assert (await ask(socket, "state"))["data"]["step_count"] == 2
        assert (await call(socket, "end_turn"))["reward"] == 5.0
    assert len(world.started) == 1
    assert (await rpc(http, "openenv/session/close", session_id=session_id))["result"] == {
        "session_id": session_id,
        "closed": True,
    }
    assert (await http.get("/status")).json()["sessions"] == 0


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [("absent", {}, -32602), ("add", {}, -32602), ("fail", {"n": 1}, -32000), ("lose", {"n": 1}, -32000)],
)
async def test_a_failed_call_is_an_error_so_that_clients_raise(http, address, name, arguments, code):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset")
        reply = await rpc(http, "tools/call", session_id=session_id, name=name, arguments=arguments)
        assert reply["error"]["code"] == code
        assert reply["error"]["message"]


async def test_before_reset_calls_say_so(http):
    session_id = await created(http)
    for method, params in (("tools/list", {}), ("tools/call", {"name": "add", "arguments": {"n": 1}})):
        reply = await rpc(http, method, session_id=session_id, **params)
        assert reply["error"]["data"] == {"reason": "no_episode"}


async def test_end_turn_gives_the_next_prompt_then_the_reward(http, address):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset", {"task_id": "talk"})
        following = await rpc(http, "tools/call", session_id=session_id, name="end_turn")
        assert following["result"] == {"prompt": "talk: turn 1", "system_prompt": "You add.", "turn": 1}
        ended = await rpc(http, "tools/call", session_id=session_id, name="end_turn", arguments={"response": "x"})
        assert ended["result"] == {"done": True, "reward": 0.0, "scores": {"sum": 0.0}}


async def test_without_a_session_an_env_lives_for_one_request(http, world):
    assert (await rpc(http, "tools/list"))["result"]["tools"]
    assert (await rpc(http, "tools/call", name="add", arguments={"n": 2}))["result"]["data"] == "2.0"
    assert len(world.started) == len(world.closed) == 2


async def test_sessions_hold_room_and_a_full_server_says_so(http, address):
    first = await created(http)
    await created(http)
    full = (await rpc(http, "openenv/session/create"))["error"]
    assert full["code"] == -32000
    assert full["message"].startswith("Server at capacity")
    assert full["data"] == {"active_sessions": 2, "max_sessions": 2}
    assert (await rpc(http, "tools/list"))["error"]["data"]["max_sessions"] == 2
    await rpc(http, "openenv/session/close", session_id=first)
    await created(http)


async def test_a_session_takes_one_socket(http, address):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "state")
        async with open_ws(address, f"/ws?session_id={session_id}") as second:
            reply = await ask(second, "state")
            assert reply["data"]["code"] == "SESSION_ERROR"
            assert "attached already" in reply["data"]["message"]


async def test_an_unknown_session_is_refused_after_the_first_frame(address):
    async with open_ws(address, "/ws?session_id=nobody") as socket:
        reply = await ask(socket, "state")
        assert reply["data"]["code"] == "SESSION_ERROR"
        with pytest.raises(ConnectionClosed):
            await socket.recv()


async def test_a_socket_may_leave_and_come_back(http, address, world):
    session_id = await created(http)
    for _ in range(2):
        async with open_ws(address, f"/ws?session_id={session_id}") as socket:
            if not world.started:
                await ask(socket, "reset")
            await call(socket, "add", n=1)
    assert (await rpc(http, "tools/call", session_id=session_id, name="add", arguments={"n": 1}))["result"][
        "data"
    ] == "3.0"


async def test_closing_an_attached_session_waits_for_its_socket(http, address, world):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset")
        closing = await rpc(http, "openenv/session/close", session_id=session_id)
        assert closing["result"] == {"session_id": session_id, "closed": False, "closing": True}
        assert (await call(socket, "add", n=1))["observation"]["error"] is None
        assert "error" in await rpc(http, "tools/list", session_id=session_id)
    await world.gone()


async def test_a_detached_idle_session_ends_after_its_time(hasty, world):
    async with httpx.AsyncClient(base_url=f"http://{hasty}", timeout=20) as http:
        session_id = await created(http)
        async with open_ws(hasty, f"/ws?session_id={session_id}") as socket:
            await ask(socket, "reset")
        await world.gone()
        assert "Unknown session_id" in (await rpc(http, "tools/list", session_id=session_id))["error"]["message"]
        await created(http)
        await created(http)


async def test_neither_a_silent_attached_session_nor_one_with_a_call_under_way_ends(hasty):
    async with httpx.AsyncClient(base_url=f"http://{hasty}", timeout=20) as http:
        session_id = await created(http)
        async with open_ws(hasty, f"/ws?session_id={session_id}") as socket:
            await ask(socket, "reset")
            await asyncio.sleep(1.2)
            assert (await call(socket, "add", n=1))["observation"]["error"] is None
        called = await rpc(http, "tools/call", session_id=session_id, name="sleep", arguments={"n": 1.2})
        assert called["result"]["data"] == "2.2"


async def test_closing_a_session_ends_its_running_call(http, world, address):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset")
    calling = asyncio.create_task(rpc(http, "tools/call", session_id=session_id, name="sleep", arguments={"n": 60}))
    await world.calling.wait()
    assert (await rpc(http, "openenv/session/close", session_id=session_id))["result"]["closed"] is True
    assert "closed" in (await calling)["error"]["message"]
    await world.gone()


async def test_a_client_that_leaves_its_call_ends_it_and_keeps_the_session(http, world, address):
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset", {"episode_id": "mine"})
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=0.2) as impatient:
            with pytest.raises(httpx.ReadTimeout):
                await rpc(impatient, "tools/call", session_id=session_id, name="sleep", arguments={"n": 60})
        assert (await call(socket, "add", n=1))["observation"]["error"] is None
        assert world.cancelled == ["call mine"]


async def test_a_socket_that_leaves_in_the_middle_of_scoring_ends_the_episode(http, world, address):
    world.score_seconds = 60
    session_id = await created(http)
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        await ask(socket, "reset")
        await socket.send(json.dumps({"type": "step", "data": {"tool_name": "end_turn"}}))
        await world.calling.wait()
    await world.gone()
    world.score_seconds = 0
    async with open_ws(address, f"/ws?session_id={session_id}") as socket:
        assert (await call(socket, "end_turn"))["metadata"]["reason"] == "no_episode"
        await ask(socket, "reset")
        assert (await call(socket, "end_turn"))["done"] is True


async def test_json_rpc_inside_ws_uses_the_sockets_session(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        own = await ask(socket, "mcp", {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"})
        assert own["type"] == "mcp"
        session_id = own["data"]["result"]["session_id"]
        params = {"name": "add", "arguments": {"n": 1}}
        for given in (params, {**params, "session_id": session_id}):
            await ask(socket, "mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": given})
        assert (await call(socket, "add", n=1))["observation"]["result"]["data"] == "3.0"
        assert (await ask(socket, "state"))["data"]["step_count"] == 3
        close = {"jsonrpc": "2.0", "id": 3, "method": "openenv/session/close", "params": {"session_id": session_id}}
        assert (await ask(socket, "mcp", close))["data"]["error"]["code"] == -32600
        assert (await ask(socket, "mcp", {"nonsense": 1}))["data"]["error"]["code"] == -32600


async def test_the_mcp_socket_plays_the_first_task(address, world):
    async with open_ws(address, "/mcp") as socket:

        async def ask_rpc(text: str) -> dict:
            await socket.send(text)
            return json.loads(await socket.recv())

        assert (await ask_rpc("{"))["error"]["code"] == -32700
        assert world.started == []
        assert (await ask_rpc('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'))["result"]["tools"]
        add = json.dumps(
            {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"n": 1}}}
        )
        assert (await ask_rpc(add))["result"]["data"] == "1.0"
        assert (await ask_rpc(add))["result"]["data"] == "2.0"
    await world.gone()
    assert len(world.started) == 1


async def test_a_result_over_the_limit_is_an_error(http):
    reply = await rpc(http, "tools/call", name="size", arguments={"n": 17 * 2**20})
    assert "can't be sent" in reply["error"]["message"]
