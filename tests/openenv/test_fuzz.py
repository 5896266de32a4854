"""Any frames, in any order, cut at any moment: each is answered once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_env.openenv.admission import Admission
from agent_env.openenv.app import assemble
from agent_env.openenv.protocol import MAX_MESSAGE_BYTES
from tests.openenv.doubles import NoSandbox, World, catalog

KINDS = {"observation", "state", "error", "mcp"}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
tools = st.sampled_from(["add", "fail", "nan", "lose", "bug", "surrogate", "end_turn", "absent"])
arguments = st.dictionaries(st.sampled_from(["n", "response", "x"]), anything, max_size=2)
actions = st.one_of(
    st.fixed_dictionaries({"tool_name": tools | anything, "arguments": arguments | anything}),
    st.just({"type": "list_tools"}),
    st.fixed_dictionaries({"type": anything}, optional={"tool_name": tools, "metadata": anything, "more": anything}),
)
places = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers() | anything,
        "split": st.sampled_from(["all", "train", "test"]) | anything,
        "index": st.integers(-2, 5) | anything,
        "episode_id": st.text(max_size=300) | anything,
        "task_id": st.sampled_from(["one", "talk"]) | anything,
        "task_spec": anything,
    },
)
requests = st.fixed_dictionaries(
    {
        "jsonrpc": st.just("2.0") | anything,
        "method": st.sampled_from(["tools/list", "tools/call", "openenv/session/create"]),
    },
    optional={
        "id": anything,
        "params": st.fixed_dictionaries({}, optional={"name": tools, "arguments": arguments, "session_id": anything})
        | anything,
    },
)
messages = st.one_of(
    st.fixed_dictionaries({"type": st.just("step"), "data": actions | anything}),
    st.fixed_dictionaries({"type": st.just("reset")}, optional={"data": places | anything}),
    st.fixed_dictionaries({"type": st.just("state")}, optional={"data": anything}),
    st.fixed_dictionaries({"type": st.just("mcp"), "data": requests | anything}),
    st.fixed_dictionaries({"type": anything}),
    anything,
)
frames = st.one_of(
    messages.map(json.dumps),
    messages.map(
        lambda message: (
            json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        )
    ),
    st.text(max_size=20),
    st.binary(max_size=20),
)


world, admission = World(deploy_seconds=0.001), Admission(1)
app = assemble(catalog(), world.make, NoSandbox(), admission)


class Wire:
    """The server's end of a WebSocket, in memory."""

    def __init__(self, query: str) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.scope = {
            "type": "websocket",
            "path": "/ws",
            "query_string": query.encode(),
            "headers": [],
            "subprotocols": [],
            "extensions": {},
            "app_state": {},
        }
        self.news = asyncio.Event()
        self.inbox.put_nowait({"type": "websocket.connect"})

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self.news.set()

    def replies(self) -> list[str]:
        return [message["text"] for message in self.sent if message["type"] == "websocket.send"]

    async def replied(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.replies()) < count:
                self.news.clear()
                await self.news.wait()


def receive(frame: str | bytes) -> dict[str, Any]:
    return {"type": "websocket.receive", "text" if isinstance(frame, str) else "bytes": frame}


def is_close(frame: str | bytes) -> bool:
    try:
        return json.loads(frame).get("type") == "close"
    except (ValueError, AttributeError):
        return False


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(frames, max_size=8), st.sampled_from(["", "wait=5", "call_timeout=1"]))
def test_every_frame_is_answered_once_in_valid_json(given_frames, query):
    sent = [frame for frame in given_frames if not is_close(frame)]

    async def converse() -> None:
        wire = Wire(query)
        running = asyncio.create_task(app(wire.scope, wire.inbox.get, wire.send))
        for frame in sent:
            wire.inbox.put_nowait(receive(frame))
        await wire.replied(len(sent))
        await asyncio.sleep(0)
        wire.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await asyncio.wait_for(running, 10)
        assert len(wire.replies()) == len(sent)
        for reply in wire.replies():
            assert len(reply.encode()) <= MAX_MESSAGE_BYTES
            value = json.loads(reply, parse_constant=lambda name: (_ for _ in ()).throw(AssertionError(name)))
            assert set(value) == {"type", "data"}
            assert value["type"] in KINDS
        assert (admission.live, world.live) == (0, 0)

    asyncio.run(converse())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(frames, min_size=1, max_size=6), st.integers(0, 30), st.sampled_from(["", "wait=5"]), st.booleans())
def test_a_cut_at_any_moment_leaves_no_env_and_no_slot(given_frames, steps, query, full):
    async def converse() -> None:
        held = admission.acquire_now() if full else None
        wire = Wire(query)
        running = asyncio.create_task(app(wire.scope, wire.inbox.get, wire.send))
        for frame in given_frames:
            wire.inbox.put_nowait(receive(frame))
        for _ in range(steps):
            await asyncio.sleep(0)
        wire.inbox.put_nowait({"type": "websocket.disconnect", "code": 1006})
        await asyncio.wait_for(running, 10)
        if held is not None:
            held.release()
        assert (admission.live, admission.waiting, world.live) == (0, 0, 0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(converse())
