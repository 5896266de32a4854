"""The WebSocket protocol of /ws, against a server on loopback whose episodes are fakes."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.exceptions import ConnectionClosed

from tests.openenv.doubles import adding_app, ask, call, open_ws, serving


async def code_of(socket, frame) -> str:
    await socket.send(frame)
    reply = json.loads(await socket.recv())
    assert reply["type"] == "error"
    return reply["data"]["code"]


async def test_an_episode_from_reset_to_reward(address, world):
    async with open_ws(address) as socket:
        opened = (await ask(socket, "reset", {"split": "train", "index": 1, "episode_id": "mine"}))["data"]
        assert opened["reward"] is None
        assert opened["done"] is False
        assert opened["metadata"] == opened["observation"]["metadata"]
        metadata = opened["metadata"]
        assert metadata["prompt"] == "three: turn 0"
        assert metadata["system_prompt"] == "You add."
        assert metadata["task"] == {"id": "@local/adding/three", "name": "three", "split": "train", "index": 1}
        assert (metadata["turn"], metadata["turns"], metadata["replayable"]) == (0, 1, True)
        assert metadata["bundle"] == "f" * 64
        assert set(metadata["seconds"]) == {"wait", "deploy"}

        listed = (await ask(socket, "step", {"type": "list_tools"}))["data"]["observation"]
        assert [tool["name"] for tool in listed["tools"]][-1] == "end_turn"
        assert all(set(tool) == {"name", "description", "input_schema"} for tool in listed["tools"])

        called = await call(socket, "add", n=3)
        assert called["observation"]["result"]["data"] == "3.0"
        assert called["observation"]["error"] is None
        assert "reward" not in called["observation"]
        assert "metadata" not in called
        assert called["observation"]["metadata"] == {}

        ended = await call(socket, "end_turn", response="done")
        assert (ended["reward"], ended["done"]) == (1.5, True)
        assert ended["metadata"]["scores"] == {"sum": 1.5}
        assert ended["metadata"]["task"]["name"] == "three"
        state = await ask(socket, "state")
        assert state["data"]["episode_id"] == "mine"
        assert state["data"]["step_count"] == 3
        assert state["data"]["done"] is True


async def test_end_turn_opens_the_next_turn(address):
    async with open_ws(address) as socket:
        assert (await ask(socket, "reset", {"task_id": "talk"}))["data"]["metadata"]["turns"] == 2
        following = await call(socket, "end_turn")
        assert following["observation"]["result"] == {"prompt": "talk: turn 1", "system_prompt": "You add."}
        assert following["metadata"]["turn"] == 1
        assert following["done"] is False
        assert (await ask(socket, "state"))["data"]["turn"] == 1
        assert (await call(socket, "end_turn", response="x"))["done"] is True


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("fail", {"n": 1}, "execution_error"),
        ("add", {}, "invalid_args"),
        ("absent", {}, "tool_not_found"),
        ("end_turn", {"response": 3}, "invalid_args"),
        ("end_turn", {"answer": "x"}, "invalid_args"),
    ],
)
async def test_a_failed_call_is_an_observation_and_the_episode_goes_on(address, tool, arguments, kind):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        failed = await call(socket, tool, **arguments)
        assert failed["observation"]["error"]["error_type"] == kind
        assert set(failed["observation"]["error"]) == {"error_type", "message"}
        assert failed["observation"]["result"] is None
        assert failed["done"] is False
        assert (await call(socket, "add", n=1))["observation"]["error"] is None


async def test_a_call_past_the_sessions_call_timeout_is_a_timeout_error(address):
    async with open_ws(address, "/ws?call_timeout=0.05") as socket:
        await ask(socket, "reset")
        late = await call(socket, "sleep", n=30)
        assert late["observation"]["error"]["error_type"] == "timeout"
        assert late["done"] is False
        assert (await call(socket, "end_turn"))["done"] is True


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "INVALID_JSON"),
        ("", "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ('{"type": "step", "data": {"tool_name": "add", "arguments": {"n": NaN}}}', "INVALID_JSON"),
        ('{"type": "step", "data": {"tool_name": "add", "arguments": {"n": 1e999}}}', "INVALID_JSON"),
        ("[1, 2]", "VALIDATION_ERROR"),
        ('"text"', "VALIDATION_ERROR"),
        (b'{"type": "state"}', "VALIDATION_ERROR"),
        ('{"type": "dance"}', "UNKNOWN_TYPE"),
        ('{"type": ["step"]}', "UNKNOWN_TYPE"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type": "state", "data": {}}', "VALIDATION_ERROR"),
        ('{"type": "close", "data": {}}', "VALIDATION_ERROR"),
        ('{"type": "step"}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"type": "call_tool"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"tool_name": "add", "timeout_s": 1}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"tool_name": "add", "arguments": "nope"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"type": "dance"}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"index": true}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": {"episode_id": ""}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": null}', "VALIDATION_ERROR"),
        ('{"type": "mcp"}', "VALIDATION_ERROR"),
    ],
)
async def test_a_bad_frame_is_answered_and_survived(address, frame, code):
    async with open_ws(address) as socket:
        assert await code_of(socket, frame) == code
        assert (await ask(socket, "state"))["data"]["step_count"] == 0


async def test_a_step_without_a_type_is_a_call(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        reply = await ask(socket, "step", {"tool_name": "add", "arguments": {"n": 2}})
        assert reply["data"]["observation"]["result"]["data"] == "2.0"


@pytest.mark.parametrize("action", [{"tool_name": "add", "arguments": {"n": 1}}, {"type": "list_tools"}])
async def test_a_step_before_reset_says_so(address, action):
    async with open_ws(address) as socket:
        early = (await ask(socket, "step", action))["data"]
        assert early["done"] is True
        assert early["reward"] is None
        assert early["metadata"]["reason"] == "no_episode"
        assert "send reset first" in early["metadata"]["error"]
        assert early["observation"].get("result") is None


async def test_a_step_after_the_end_says_so(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        await call(socket, "end_turn")
        late = await call(socket, "add", n=1)
        assert late["metadata"]["reason"] == "no_episode"
        assert "has ended" in late["metadata"]["error"]
        assert late["metadata"]["task"]["name"] == "two"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({}, "two"),
        ({"seed": 0}, "two"),
        ({"seed": 1}, "three"),
        ({"seed": 2}, "two"),
        ({"seed": -1}, "three"),
        ({"seed": 10**300}, "two"),
        ({"seed": 7, "split": "all"}, "talk"),
        ({"split": "test", "index": 0}, "one"),
        ({"split": "all", "index": 1, "seed": 3}, "two"),
        ({"task_id": "@local/adding/one"}, "one"),
        ({"task_spec": {"id": "@local/adding/talk", "prompt": "x"}}, "talk"),
        ({"difficulty": "high"}, "two"),
    ],
)
async def test_which_task_a_reset_plays(address, data, name):
    async with open_ws(address) as socket:
        assert (await ask(socket, "reset", data))["data"]["metadata"]["task"]["name"] == name


@pytest.mark.parametrize(
    "data",
    [
        {"split": "train", "index": 2},
        {"split": "train", "index": -1},
        {"split": "nowhere", "index": 0},
        {"index": 0},
        {"split": "train"},
        {"task_id": "nobody"},
        {"task_spec": {}},
        {"split": "test", "task_id": "two"},
        {"split": "nowhere", "seed": 1},
    ],
)
async def test_an_unknown_task_is_a_failed_episode_that_deploys_nothing(address, world, data):
    async with open_ws(address) as socket:
        failed = (await ask(socket, "reset", data))["data"]
        assert failed["done"] is True
        assert failed["metadata"]["status"] == "error"
        assert failed["metadata"]["reason"] == "unknown_task"
        assert failed["metadata"]["error"]
        assert world.started == []
        assert (await ask(socket, "reset"))["data"]["done"] is False


async def test_a_failed_deploy_is_a_failed_episode(address, world):
    world.fail_deploys = True
    async with open_ws(address) as socket:
        failed = (await ask(socket, "reset"))["data"]
        assert failed["metadata"]["reason"] == "deploy_failed"
        assert "exit status 1" in failed["metadata"]["error"]
        assert failed["metadata"]["task"]["name"] == "two"
        world.fail_deploys = False
        assert (await ask(socket, "reset"))["data"]["done"] is False
    await world.gone()


async def test_a_lost_env_ends_the_episode(address, world):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        lost = await call(socket, "lose", n=1)
        assert lost["done"] is True
        assert lost["metadata"]["reason"] == "env_lost"
        assert lost["observation"]["error"]["error_type"] == "transport_error"
        await world.gone()


async def test_an_unscored_episode_has_no_reward(address, world):
    world.unscored = True
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        ended = await call(socket, "end_turn")
        assert (ended["done"], ended["reward"], ended["metadata"]["reason"]) == (True, None, "unscored")


async def test_an_unexpected_error_is_an_error_frame_and_survived(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        await socket.send(json.dumps({"type": "step", "data": {"tool_name": "bug", "arguments": {"n": 1}}}))
        reply = json.loads(await socket.recv())
        assert reply["data"] == {"code": "EXECUTION_ERROR", "message": "ZeroDivisionError: a bug"}
        assert (await call(socket, "add", n=1))["observation"]["error"] is None


async def test_a_result_over_the_message_limit_is_the_tools_error(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        big = await call(socket, "size", n=17 * 2**20)
        assert big["observation"]["error"]["error_type"] == "execution_error"
        assert str(16 * 2**20) in big["observation"]["error"]["message"]
        fits = await call(socket, "size", n=8 * 2**20 - 4096)
        assert len(fits["observation"]["result"]["data"]) == 8 * 2**20 - 4096


async def test_nan_goes_out_as_null_and_lone_surrogates_as_replacement_characters(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        await socket.send(json.dumps({"type": "step", "data": {"tool_name": "nan", "arguments": {"n": 1}}}))
        assert "NaN" not in (received := await socket.recv())
        assert json.loads(received)["data"]["observation"]["result"]["structured_content"] == {"n": None}
        assert (await call(socket, "surrogate", n=1))["observation"]["result"]["data"] == "a\ufffdb"


async def test_requests_behind_a_call_are_answered_after_it_in_order(address, world):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        step = {"type": "step", "data": {"tool_name": "sleep", "arguments": {"n": 0.1}}}
        for frame in (step, {"type": "state"}, step, {"type": "state"}):
            await socket.send(json.dumps(frame))
        replies = [json.loads(await socket.recv()) for _ in range(4)]
        assert [reply["type"] for reply in replies] == ["observation", "state", "observation", "state"]
        assert [replies[1]["data"]["step_count"], replies[3]["data"]["step_count"]] == [1, 2]


async def test_close_has_no_reply_and_closes_with_1000(address):
    async with open_ws(address) as socket:
        await socket.send('{"type": "close"}')
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1000


async def test_steps_carry_the_step_reward_where_one_is_set(world):
    world.unscored = True
    async with serving(adding_app(world, step_reward=0.0)) as address, open_ws(address) as socket:
        assert (await ask(socket, "reset", {"task_id": "talk"}))["data"]["reward"] is None
        assert (await ask(socket, "step", {"type": "list_tools"}))["data"]["reward"] == 0.0
        for tool in ("add", "absent", "end_turn"):
            assert (await call(socket, tool))["reward"] == 0.0
        assert (await call(socket, "end_turn"))["reward"] is None


async def test_a_reset_ends_the_episode_before_it(address, world):
    async with open_ws(address) as socket:
        await ask(socket, "reset", {"episode_id": "first"})
        await call(socket, "add", n=1)
        await ask(socket, "reset", {"episode_id": "second"})
        assert world.closed == ["first"]
        assert (await ask(socket, "state"))["data"]["step_count"] == 0
        assert world.peak == 1


async def test_a_cut_during_a_call_cancels_it_and_frees_the_slot(address, world):
    async with open_ws(address) as socket:
        await ask(socket, "reset", {"episode_id": "mine"})
        await socket.send(json.dumps({"type": "step", "data": {"tool_name": "sleep", "arguments": {"n": 60}}}))
        await asyncio.wait_for(world.calling.wait(), 5)
        socket.transport.abort()
        await world.gone()
        assert world.cancelled == ["call mine"]


async def test_a_cut_during_a_deploy_cancels_it(address, world):
    world.deploy_seconds = 60
    async with open_ws(address) as socket:
        await socket.send(json.dumps({"type": "reset", "data": {"episode_id": "mine"}}))
        await asyncio.wait_for(world.deploying.wait(), 5)
        socket.transport.abort()
        await world.gone()
        assert world.cancelled == ["deploy mine"]


async def test_a_client_that_floods_is_closed(address, world):
    async with open_ws(address) as socket:
        await ask(socket, "reset")
        await socket.send(json.dumps({"type": "step", "data": {"tool_name": "sleep", "arguments": {"n": 60}}}))
        for _ in range(1100):
            await socket.send('{"type": "state"}')
        assert json.loads(await socket.recv())["data"]["code"] == "SESSION_ERROR"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1008
    await world.gone()


@pytest.mark.parametrize("query", ["wait=abc", "wait=-1", "wait=nan", "call_timeout=inf", "call_timeout=0"])
async def test_a_bad_setting_is_refused_after_the_first_frame(address, query):
    async with open_ws(address, f"/ws?{query}") as socket:
        assert await code_of(socket, '{"type": "reset"}') == "VALIDATION_ERROR"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1008
