"""Sessions against a full server."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import AsyncExitStack

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from tests.openenv.doubles import adding_app, ask, call, open_ws, serving


async def refused(socket) -> dict:
    """What a session that is refused is told, which is then closed with 1013."""
    reply = await ask(socket, "reset")
    with pytest.raises(ConnectionClosed) as closed:
        await socket.recv()
    assert closed.value.rcvd.code == 1013
    return reply


async def status(address) -> dict:
    async with httpx.AsyncClient(base_url=f"http://{address}") as http:
        return (await http.get("/status")).json()


async def status_when(address, waiting: int) -> dict:
    """The status once so many wait."""
    async with asyncio.timeout(5):
        while True:
            now = await status(address)
            if now["waiting"] == waiting:
                return now
            await asyncio.sleep(0.01)


async def test_a_full_server_refuses_after_the_first_frame_and_closes_with_1013(address, world):
    async with open_ws(address) as first, open_ws(address) as second, open_ws(address) as third:
        await ask(first, "state")
        await ask(second, "reset")
        told = await refused(third)
        assert told["type"] == "error"
        assert told["data"]["code"] == "CAPACITY_REACHED"
        assert told["data"]["message"].startswith("Server at capacity: 2/2 sessions active")
        assert (told["data"]["active_sessions"], told["data"]["max_sessions"]) == (2, 2)
    assert len(world.started) == 1


async def test_a_socket_that_says_nothing_holds_no_room(address):
    async with open_ws(address), open_ws(address), open_ws(address) as third:
        assert (await ask(third, "reset"))["data"]["done"] is False


async def test_room_is_there_again_when_a_session_has_ended(address):
    async with open_ws(address) as first:
        async with open_ws(address) as second:
            await ask(first, "reset")
            await ask(second, "reset")
        async with open_ws(address, "/ws?wait=10") as third:
            assert (await ask(third, "reset"))["data"]["done"] is False


async def test_a_queueing_session_holds_no_room_before_its_reset(address):
    async with open_ws(address, "/ws?wait=10") as queueing, open_ws(address) as first, open_ws(address) as second:
        assert (await ask(queueing, "state"))["data"]["step_count"] == 0
        assert (await ask(first, "reset"))["data"]["done"] is False
        assert (await ask(second, "reset"))["data"]["done"] is False


async def test_a_queueing_reset_waits_for_room_and_says_how_long(address, world):
    async with open_ws(address, "/ws?wait=30") as first, open_ws(address, "/ws?wait=30") as second:
        await ask(first, "reset")
        await ask(second, "reset")
        async with open_ws(address, "/ws?wait=30") as third:
            waiting = asyncio.create_task(ask(third, "reset", {"episode_id": "third"}))
            now = await status_when(address, waiting=1)
            assert [one["phase"] for one in now["episodes"]] == ["idle", "idle", "waiting"]
            await call(first, "end_turn")
            opened = await waiting
            assert opened["data"]["metadata"]["seconds"]["wait"] > 0
            assert world.peak == 2


async def test_a_queueing_session_gives_its_room_back_when_its_episode_ends(address):
    async with open_ws(address, "/ws?wait=30") as first, open_ws(address) as second:
        await ask(first, "reset")
        await ask(second, "reset")
        await call(first, "end_turn")
        async with open_ws(address, "/ws?wait=30") as third:
            assert (await ask(third, "reset"))["data"]["done"] is False


async def test_another_session_keeps_its_room_for_its_next_episode(address):
    async with open_ws(address) as first, open_ws(address) as second, open_ws(address) as third:
        await ask(first, "reset")
        await ask(second, "reset")
        await call(first, "end_turn")
        assert (await refused(third))["data"]["code"] == "CAPACITY_REACHED"
        assert (await ask(first, "reset"))["data"]["done"] is False


async def test_a_wait_that_runs_out_is_refused(address):
    async with open_ws(address) as first, open_ws(address) as second, open_ws(address, "/ws?wait=0.05") as third:
        await ask(first, "reset")
        await ask(second, "reset")
        told = await refused(third)
        assert told["data"]["code"] == "CAPACITY_REACHED"
        assert "no room within 0.05 s" in told["data"]["message"]


async def test_a_waiting_client_that_leaves_is_taken_out_of_the_queue(address, world):
    async with open_ws(address) as first, open_ws(address) as second:
        await ask(first, "reset")
        await ask(second, "reset")
        async with open_ws(address, "/ws?wait=60") as third:
            await third.send(json.dumps({"type": "reset"}))
            await status_when(address, waiting=1)
        await status_when(address, waiting=0)
    await world.gone()
    assert len(world.started) == 2


async def test_a_client_that_vanished_without_a_word_is_noticed_by_its_missing_pongs(world):
    async with serving(adding_app(world), ws_ping_interval=0.1, ws_ping_timeout=0.1) as address:
        host, port = address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        handshake = ["GET /ws HTTP/1.1", "host: x", "connection: upgrade", "upgrade: websocket"]
        handshake += ["sec-websocket-version: 13", f"sec-websocket-key: {'A' * 22}==", "", ""]
        writer.write("\r\n".join(handshake).encode())
        await reader.readuntil(b"\r\n\r\n")
        frame = b'{"type":"reset"}'
        writer.write(bytes([0x81, 0x80 | len(frame), 0, 0, 0, 0]) + frame)
        await world.deploying.wait()
        await world.gone()
        writer.close()


async def test_a_slot_is_free_only_when_its_env_is_gone(address, world):
    world.close_seconds = 0.2
    for _ in range(3):
        async with open_ws(address, "/ws?wait=60") as one, open_ws(address, "/ws?wait=60") as other:
            await asyncio.gather(ask(one, "reset"), ask(other, "reset"))
            await call(one, "end_turn")
    await world.gone()
    assert world.peak == 2


async def test_a_client_that_plays_on_one_connection_after_another_is_not_refused(world):
    world.close_seconds = 0.1
    async with serving(adding_app(world, max_concurrent_envs=1)) as address:
        for _ in range(4):
            async with open_ws(address) as socket:
                assert (await ask(socket, "reset"))["data"]["done"] is False
    assert world.peak == 1


async def test_64_clients_at_once_all_play_and_the_cap_holds(world):
    async def play(address: str) -> float:
        async with open_ws(address, "/ws?wait=60") as socket:
            await ask(socket, "reset")
            await call(socket, "sleep", n=0.01)
            return (await call(socket, "end_turn"))["reward"]

    async with serving(adding_app(world, max_concurrent_envs=8)) as address:
        rewards = await asyncio.gather(*(play(address) for _ in range(64)))
        assert rewards == [0.01] * 64
        await world.gone()
        assert (await status(address))["totals"] == {"scored": 64}
    assert world.peak == 8
    assert len(world.closed) == 64


async def test_sessions_take_no_threads(world):
    async with serving(adding_app(world, max_concurrent_envs=32)) as address:
        before = threading.active_count()
        async with AsyncExitStack() as stack:
            for _ in range(32):
                socket = await stack.enter_async_context(open_ws(address))
                await ask(socket, "reset")
                await call(socket, "add", n=1)
            assert threading.active_count() == before


async def test_status_says_what_is_going_on(address, world):
    async with open_ws(address) as socket:
        await ask(socket, "reset", {"split": "test", "index": 0, "episode_id": "mine"})
        await socket.send(json.dumps({"type": "step", "data": {"tool_name": "sleep", "arguments": {"n": 0.5}}}))
        await world.calling.wait()
        now = await status(address)
        assert (now["capacity"], now["live"], now["waiting"], now["sessions"]) == (2, 1, 0, 1)
        assert now["env"] == "Adding"
        assert now["bundle"] == "f" * 64
        assert now["splits"] == {"all": 4, "train": 2, "test": 1}
        assert now["tier"]["name"] == "namespaces"
        [episode] = now["episodes"]
        assert (episode["episode_id"], episode["phase"], episode["tool"], episode["steps"]) == (
            "mine",
            "calling",
            "sleep",
            1,
        )
        assert episode["task"]["name"] == "one"
    await world.gone()
    now = await status(address)
    assert (now["live"], now["sessions"], now["totals"]) == (0, 0, {"abandoned": 1})
