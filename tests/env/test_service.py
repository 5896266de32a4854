from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agent_env.env import Env, ToolError, tool
from agent_env.env.service import Service
from agent_env.env.testing import Driver
from tests.env.doubles import URI, Shelf, SyncShelf


@pytest.fixture
def shelf() -> Iterator[Driver]:
    with Driver(Shelf) as driver:
        yield driver


def test_a_sync_and_an_async_tool_answer_with_text(shelf: Driver) -> None:
    assert shelf.call("put", item="a", times=2).text == "2 items"
    assert shelf.call("wait", seconds=0).text == "waited"


def test_bad_arguments_are_a_tool_error_and_the_method_does_not_run(shelf: Driver) -> None:
    called = shelf.call("put", item="a", times=True)
    assert called.is_error
    assert called.text == "put: argument times: expected an integer, got the boolean true"
    assert shelf.data() == {"items": []}


def test_an_unknown_tool_is_a_tool_error_that_names_the_offered_ones(shelf: Driver) -> None:
    called = shelf.call("putt")
    assert called.is_error
    assert called.text == "unknown tool 'putt' (tools: put, wait, fail, give)"


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("refuse", "not today"),
        ("break", "secret.py broke"),
        ("silent", "KeyError"),
        ("cancel", "fail was cancelled"),
        ("nan", "the tool returned something that JSON can't hold: Out of range float values"),
        ("object", "the tool returned something that JSON can't hold: Object of type object"),
    ],
)
def test_a_failing_tool_is_a_tool_error_with_the_message_only(
    shelf: Driver, how: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    called = shelf.call("fail", how=how)
    assert called.is_error
    assert called.text.startswith(text)
    assert "\n" not in called.text
    assert shelf.call("put", item="a").text == "1 items"
    assert ("Traceback" in capfd.readouterr().err) == (how not in ("refuse", "cancel"))


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("none", ""),
        ("bytes", "�ok"),
        ("é", "é"),
        ([1, "é"], '[1,"é"]'),
        (3.5, "3.5"),
        (True, "true"),
        ({"a": [1]}, '{"a":[1]}'),
    ],
)
def test_what_a_tool_returns_becomes_text(shelf: Driver, what: Any, text: str) -> None:
    called = shelf.call("give", what=what)
    assert not called.is_error
    assert called.text == text
    assert called.structured == (what if isinstance(what, dict) else None)


def test_tools_are_listed_in_order_with_hidden_ones_marked(shelf: Driver) -> None:
    tools = shelf.tools()
    assert [entry["name"] for entry in tools] == ["put", "wait", "fail", "give", "peek"]
    assert tools[0] == {
        "name": "put",
        "description": "Put an item on the shelf.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "item": {"type": "string", "description": "what to put"},
                "times": {"type": "integer", "minimum": 1, "default": 1},
            },
            "required": ["item"],
            "additionalProperties": False,
        },
    }
    assert [entry.get("_meta") for entry in tools] == [None] * 4 + [{"agentenv.io/hiddenByDefault": True}]


def test_the_card_says_what_is_served(shelf: Driver) -> None:
    card = shelf.card()
    assert card["name"] == "shelf"
    assert card["description"] == "Holds items."
    assert card["additionalInterfaces"] == [{"url": "/mcp", "transport": "mcp"}]
    assert card["capabilities"]["operations"] == ["data/reset", "data/add", "data/get"]
    assert card["capabilities"]["tools"] == shelf.tools()
    (extension,) = card["capabilities"]["extensions"]
    assert extension["uri"] == URI
    methods = extension["params"]["methods"]
    assert list(methods) == ["load", "count"]
    assert methods["load"]["endpoint"] == "/agentenv/ext/load"


def test_an_env_serves_only_the_data_operations_it_defines() -> None:
    class Bare(Env):
        pass

    with Driver(Bare) as bare:
        card = bare.card()
        assert (card["name"], card["capabilities"]) == ("bare", {"extensions": None, "tools": [], "operations": []})
        with pytest.raises(ToolError, match="not served: data/get"):
            bare.get_data()


def test_the_data_plane_resets_adds_and_gets(shelf: Driver) -> None:
    shelf.add_data([{"kind": "text", "text": "a"}, {"kind": "data", "data": {}}])
    assert shelf.get_data() == [{"kind": "data", "data": {"items": ["a"]}}]
    shelf.reset_data()
    assert shelf.data() == {"items": []}


@pytest.mark.parametrize("parts", [[], [1], [{"kind": "text"}], [{"kind": "blob", "blob": 1}], [{"kind": []}]])
def test_malformed_parts_are_refused(shelf: Driver, parts: list[Any]) -> None:
    with pytest.raises(ToolError, match="non-empty list of parts"):
        shelf.add_data(parts)


@pytest.mark.parametrize(("item", "why"), [("break", "no data today"), ("nan", "not JSON compliant")])
def test_a_failing_get_data_is_told_apart(shelf: Driver, item: str, why: str) -> None:
    shelf.call("put", item=item)
    with pytest.raises(ToolError, match=why):
        shelf.get_data()


def test_an_extension_is_called_by_name_with_checked_arguments(shelf: Driver) -> None:
    assert shelf.call_extension("load", items=["a", "b"]) == {"ok": True}
    assert shelf.call_extension("count") == 2
    with pytest.raises(ToolError, match="argument items\\[0\\]: expected a string, got the integer 1"):
        shelf.call_extension("load", items=[1])
    with pytest.raises(ToolError, match="bad items are refused"):
        shelf.call_extension("load", items=["bad"])
    with pytest.raises(ToolError, match="fell over"):
        shelf.call_extension("load", items=["worse"])
    with pytest.raises(ToolError, match="no extension operation 'save'"):
        shelf.call_extension("save")


async def test_tools_run_one_at_a_time_while_the_data_plane_answers() -> None:
    env = Shelf()
    service = Service(env)
    calls = [asyncio.create_task(service.call_tool("wait", {"seconds": 0.01})) for _ in range(3)]
    await asyncio.sleep(0)
    assert await service.get_data() == [{"kind": "data", "data": {"items": []}}]
    assert [called.text for called in await asyncio.gather(*calls)] == ["waited"] * 3
    assert env.most_running == 1


async def test_a_cancelled_call_frees_its_turn() -> None:
    env = Shelf()
    service = Service(env)
    stuck = asyncio.create_task(service.call_tool("wait", {"seconds": 3600}))
    await asyncio.sleep(0)
    stuck.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stuck
    assert (await service.call_tool("put", {"item": "a"})).text == "1 items"
    assert env.running == 0


def test_a_subclass_inherits_overrides_and_takes_away_tools() -> None:
    class Smaller(Shelf):
        fail = None  # type: ignore[assignment]

        @tool
        def put(self, item: str) -> str:  # type: ignore[override]
            """Put one."""
            return "put"

    with Driver(Smaller) as smaller:
        assert [entry["name"] for entry in smaller.tools()] == ["put", "wait", "give", "peek"]
        assert smaller.tools()[0]["description"] == "Put one."
        assert smaller.call("put", item="a", times=2).is_error


def test_two_methods_of_one_name_are_refused() -> None:
    class Twice(Env):
        @tool
        def a(self) -> None: ...

        @tool(name="a")
        def b(self) -> None: ...

    with pytest.raises(TypeError, match="two methods are named a"):
        Service(Twice())


def test_a_tool_that_json_cannot_call_is_refused_when_the_env_is_made() -> None:
    class Odd(Env):
        @tool
        def a(self, x: set[int]) -> None: ...

    with pytest.raises(TypeError, match=r"Odd\.a: parameter x: "):
        Driver(Odd)


def test_only_an_async_method_makes_an_env_wait() -> None:
    class Sly(Env):
        @tool
        def sleep(self) -> Any:
            return asyncio.sleep(0)

    assert Service(Shelf()).waits
    assert not Service(SyncShelf()).waits
    with Driver(Sly) as sly:
        assert sly.call("sleep").text == "a method returned an awaitable; define it with `async def`"
