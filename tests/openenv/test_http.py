"""The HTTP routes: health, descriptions, stateless reset and step, the Task API."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.middleware.exceptions import ExceptionMiddleware
from websockets.exceptions import InvalidStatus

from agent_env.openenv.replies import BodyLimit
from agent_env.openenv.schemas import OBSERVATION_SCHEMA
from tests.openenv.doubles import open_ws


async def test_gets_describe_the_server_and_deploy_nothing(http, world):
    assert (await http.get("/health")).json() == {"status": "healthy"}
    about = (await http.get("/metadata")).json()
    assert (about["name"], about["description"]) == ("Adding", "Adds numbers.")
    schema = (await http.get("/schema")).json()
    assert set(schema) == {"action", "observation", "state", "reset_observation"}
    assert len(schema["observation"]["anyOf"]) == 3
    assert (await http.get("/state")).json()["step_count"] == 0
    assert (await http.get("/state")).json()["episode_id"] is None
    assert (await http.get("/status")).json()["live"] == 0
    assert world.started == []


async def test_openapi_names_a_version_1_and_the_simulation_routes(http):
    api = (await http.get("/openapi.json")).json()
    assert api["info"]["version"].startswith("1.")
    assert {"/reset", "/step", "/state", "/health", "/mcp"} <= set(api["paths"])


async def test_reset_deploys_and_takes_down(http, world):
    reply = await http.post("/reset", json={"split": "test", "index": 0, "episode_id": "mine", "seed": 3, "extra": 1})
    assert reply.status_code == 200
    body = reply.json()
    assert body["metadata"] == body["observation"]["metadata"]
    assert body["metadata"]["task"]["name"] == "one"
    assert (body["reward"], body["done"]) == (None, False)
    assert world.started == world.closed == ["mine"]
    assert (await http.post("/reset")).status_code == 200


async def test_step_acts_once_in_a_fresh_episode(http, world):
    for action, key in (({"type": "list_tools"}, "tools"), ({"tool_name": "add", "arguments": {"n": 2}}, "result")):
        body = (await http.post("/step", json={"action": action, "timeout_s": 5})).json()
        assert body["observation"][key]
        assert body["done"] is False
    assert len(world.started) == len(world.closed) == 2


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/reset", b'{"seed": -1}'),
        ("/reset", b'{"seed": "1"}'),
        ("/reset", b'{"episode_id": "' + b"x" * 256 + b'"}'),
        ("/reset", b"[1]"),
        ("/reset", b"{"),
        ("/reset", b'{"seed": NaN}'),
        ("/reset", b'{"split": "\\ud800", "index": "\\ud800"}'),
        ("/step", b""),
        ("/step", b"{}"),
        ("/step", b'{"action": 3}'),
        ("/step", b'{"action": {"type": "dance"}}'),
        ("/step", b'{"action": {"tool_name": "add", "more": NaN}}'),
        ("/step", b'{"action": {"tool_name": "add"}, "timeout_s": 0}'),
        ("/adding/task", b'{"split": "all"}'),
        ("/adding/task", b'{"split": "all", "index": true}'),
        ("/adding/task", b'{"split": "all", "index": 0, "more": 1}'),
        ("/adding/num_tasks", b'{"split": 3}'),
    ],
)
async def test_a_bad_body_is_422_and_the_connection_goes_on(http, world, path, content):
    reply = await http.post(path, content=content, headers={"content-type": "application/json"})
    assert reply.status_code == 422, reply.text
    assert reply.json()["detail"]
    assert (await http.get("/health")).status_code == 200
    assert world.started == []


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"seed": ' + b"1" * 5000 + b"}", b'{"a": "\xff"}'])
async def test_a_body_that_isnt_json_is_a_client_error(http, content):
    reply = await http.post("/reset", content=content, headers={"content-type": "application/json"})
    assert 400 <= reply.status_code < 500


async def test_a_full_server_answers_503(http):
    created = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}
    await http.post("/mcp", json=created)
    for path, body in (("/reset", {}), ("/step", {"action": {"type": "list_tools"}})):
        reply = await http.post(path, json=body)
        assert reply.status_code == 503
        assert reply.headers["retry-after"]
        assert "at capacity" in reply.json()["detail"]


async def test_a_body_over_the_limit_is_413(http):
    for path in ("/mcp", "/reset", "/adding/task"):
        reply = await http.post(path, content=b'"' + b"x" * (16 * 2**20) + b'"')
        assert reply.status_code == 413
    assert (await http.get("/health")).status_code == 200


async def test_a_body_that_trickles_is_408():
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        await asyncio.sleep(0.03)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def read_all(scope, receive, send):
        while (await receive())["more_body"]:
            pass

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    await BodyLimit(ExceptionMiddleware(read_all), seconds=0.1)(scope, receive, send)
    assert sent[0]["status"] == 408


async def test_a_client_that_leaves_its_reset_cancels_the_deploy(http, world):
    world.deploy_seconds = 60
    with pytest.raises(httpx.ReadTimeout):
        await http.post("/reset", json={"episode_id": "mine"}, timeout=0.2)
    await world.gone()
    assert world.cancelled == ["deploy mine"]
    world.deploy_seconds = 0
    assert (await http.post("/reset")).status_code == 200


async def test_a_failed_deploy_over_http_is_an_observation(http, world):
    world.fail_deploys = True
    for path, body in (("/reset", {}), ("/step", {"action": {"type": "list_tools"}})):
        reply = await http.post(path, json=body)
        assert reply.status_code == 200
        assert reply.json()["metadata"]["reason"] == "deploy_failed"


async def test_an_unexpected_error_is_a_500_and_the_connection_goes_on(http, world):
    body = {"tool_name": "bug", "arguments": {"n": 1}}
    reply = await http.post("/step", json={"action": body})
    assert (reply.status_code, reply.json()) == (500, {"detail": "ZeroDivisionError: a bug"})
    params = {"name": "bug", "arguments": {"n": 1}}
    reply = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert reply.json()["error"] == {"code": -32603, "message": "ZeroDivisionError: a bug", "data": None}
    assert (await http.post("/reset")).status_code == 200
    assert len(world.closed) == 3


async def test_the_task_api(http, world):
    assert (await http.get("/list_environments")).json() == ["Adding"]
    assert (await http.get("/ADDING/splits")).json() == [
        {"name": "all", "type": "validation"},
        {"name": "train", "type": "train"},
        {"name": "test", "type": "test"},
    ]
    assert (await http.post("/adding/num_tasks", json={"split": "train"})).json() == {"num_tasks": 2}
    one = (await http.post("/adding/task", json={"split": "train", "index": 1})).json()["task"]
    assert (one["id"], one["name"], one["index"]) == ("@local/adding/three", "three", 1)
    assert (one["prompt"], one["system_prompt"], one["agent"], one["turns"]) == (
        "three: turn 0",
        "You add.",
        "agent",
        1,
    )
    every = (await http.post("/adding/tasks", json={"split": "train"})).json()
    assert every["env_name"] == "Adding"
    assert every["tasks"][1] == one
    assert world.started == []


@pytest.mark.parametrize(
    ("span", "names"),
    [
        ({}, ["one", "two", "three", "talk"]),
        ({"start": 1, "stop": 3}, ["two", "three"]),
        ({"start": None, "stop": 1}, ["one"]),
        ({"start": -1}, ["talk"]),
        ({"start": 3, "stop": 1}, []),
        ({"start": 0, "stop": 10**30}, ["one", "two", "three", "talk"]),
    ],
)
async def test_a_task_range_is_a_slice(http, span, names):
    tasks = (await http.post("/adding/task_range", json={"split": "all", **span})).json()["tasks"]
    assert [task["name"] for task in tasks] == names


@pytest.mark.parametrize(
    ("path", "body", "status", "detail"),
    [
        ("/adding/task", {"split": "all", "index": 4}, 400, "Invalid task index"),
        ("/adding/task", {"split": "all", "index": -1}, 400, "Invalid task index"),
        (
            "/adding/task",
            {"split": "nowhere", "index": 0},
            400,
            "unknown split 'nowhere'; this server has: all, train, test",
        ),
        ("/adding/num_tasks", {"split": "nowhere"}, 400, "unknown split 'nowhere'; this server has: all, train, test"),
        ("/other/num_tasks", {"split": "all"}, 404, "unknown environment 'other'"),
    ],
)
async def test_task_api_errors(http, path, body, status, detail):
    reply = await http.post(path, json=body)
    assert (reply.status_code, reply.json()) == (status, {"detail": detail})


async def test_an_unknown_env_has_no_splits(http):
    assert (await http.get("/other/splits")).status_code == 404


def test_every_kind_of_observation_is_one_alternative_of_the_schema():
    titles = [one["title"] for one in OBSERVATION_SCHEMA["anyOf"]]
    assert titles == ["CallToolObservation", "ListToolsObservation", "ResetObservation"]
    assert all(one["additionalProperties"] is False for one in OBSERVATION_SCHEMA["anyOf"])


async def test_an_unknown_socket_route_is_refused(http):
    with pytest.raises(InvalidStatus):
        await open_ws(str(http.base_url).removeprefix("http://").rstrip("/"), "/nowhere")
