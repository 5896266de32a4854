"""`build_app` over real bundles in the process sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from agent_env.bundle import BundleError
from agent_env.episode import Event
from agent_env.monitor.traces import read_trace
from agent_env.openenv import build_app
from tests.openenv.doubles import ask, call, open_ws, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
COUNTING = ROOT / "tests" / "conformance" / "counting"
GRIDSIM = ROOT / "bundles" / "gridsim-v1"


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
async def address(events, tmp_path) -> AsyncIterator[str]:
    app = build_app(COUNTING, max_concurrent_envs=2, traces=tmp_path / "traces", listeners=[events.append])
    async with serving(app) as address:
        yield address


async def none_live(address: str) -> None:
    """Await the end of every env."""
    async with httpx.AsyncClient(base_url=f"http://{address}") as http, asyncio.timeout(20):
        while True:
            if (await http.get("/status")).json()["live"] == 0:
                return
            await asyncio.sleep(0.05)


async def test_an_episode_of_two_turns_is_scored_in_its_own_env(address, events, tmp_path):
    async with open_ws(address) as socket, open_ws(address) as other:
        opened = await ask(socket, "reset", {"task_id": "talk", "episode_id": "mine"})
        assert opened["data"]["metadata"]["prompt"] == "Add up to 5."
        await ask(other, "reset", {"task_id": "count"})
        await call(other, "add", amount=9)
        assert (await call(socket, "add", amount=5))["observation"]["result"]["data"] == "5"
        assert (await call(socket, "end_turn", response="5"))["observation"]["result"]["prompt"] == "Now to 10."
        assert (await call(socket, "add", amount=2))["observation"]["result"]["data"] == "7"
        ended = await call(socket, "end_turn", response="7")
        assert (ended["reward"], ended["metadata"]["scores"]) == (0.7, {"score": 0.7})
        refused = await call(other, "add", amount="one")
        assert refused["observation"]["error"]["error_type"] == "invalid_args"
    await none_live(address)
    mine = [event.kind for event in events if event.episode_id == "mine"]
    told = [kind for kind in mine if kind in ("deployed", "call", "turn_ended", "scored", "closed")]
    assert told == ["deployed", "call", "turn_ended", "call", "turn_ended", "scored", "closed"]
    trace = read_trace(tmp_path / "traces" / "mine.jsonl")
    assert [event["kind"] for event in trace] == mine


async def test_metrics_are_there_in_prometheus_format(address):
    async with open_ws(address) as socket:
        await ask(socket, "reset", {"task_id": "count"})
        await call(socket, "end_turn")
    await none_live(address)
    async with httpx.AsyncClient(base_url=f"http://{address}") as http:
        reply = await http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    assert 'agent_env_episodes_total{end="scored"} 1.0' in reply.text
    assert "agent_env_capacity 2.0" in reply.text
    assert "agent_env_wait_seconds_count 1.0" in reply.text


async def test_a_cut_in_a_deploy_leaves_no_env(address, events):
    for _ in range(5):
        async with open_ws(address) as socket:
            await socket.send(json.dumps({"type": "reset", "data": {"task_id": "count"}}))
            await asyncio.sleep(0.01)
            socket.transport.abort()
    await none_live(address)
    begun = {event.episode_id for event in events}
    assert begun == {event.episode_id for event in events if event.kind == "closed"}


async def test_a_mapping_serves_each_split_from_its_bundle():
    app = build_app({"train": GRIDSIM, "test": COUNTING}, max_concurrent_envs=1)
    async with serving(app) as address, open_ws(address) as socket:
        for split, prompt in (("test", "Add up to 10."), ("train", "Battery:")):
            opened = await ask(socket, "reset", {"split": split, "index": 0})
            assert opened["data"]["metadata"]["prompt"].startswith(prompt)
            assert (await call(socket, "end_turn"))["reward"] == 0.0


async def test_a_listener_that_fails_disturbs_no_episode(caplog):
    def failing(event: Event) -> None:
        raise KeyError(event.kind)

    async with serving(build_app(COUNTING, listeners=[failing])) as address, open_ws(address) as socket:
        await ask(socket, "reset", {"task_id": "count"})
        assert (await call(socket, "end_turn"))["reward"] == 0.0
    assert "a listener failed on deployed" in caplog.text


async def test_a_reward_function_that_fails_leaves_the_episode_unscored():
    def failing(scores):
        return scores["nothing"]

    async with serving(build_app(COUNTING, reward=failing)) as address, open_ws(address) as socket:
        await ask(socket, "reset", {"task_id": "count"})
        ended = await call(socket, "end_turn")
        assert (ended["done"], ended["reward"], ended["metadata"]["reason"]) == (True, None, "unscored")


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max_concurrent_envs": 0}, ValueError),
        ({"token": ""}, ValueError),
        ({"sandbox": "magic"}, ValueError),
        ({"reward": "nothing"}, BundleError),
    ],
)
def test_a_bad_setting_is_refused_before_anything_starts(settings, error):
    with pytest.raises(error):
        build_app(COUNTING, **settings)


def test_an_unknown_bundle_is_refused():
    with pytest.raises(BundleError, match="no such folder"):
        build_app("no-such-bundle")
