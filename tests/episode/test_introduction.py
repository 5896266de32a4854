"""What an env's server tells of itself as it comes up is used instead of asked for; nonsense is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.env.app import App
from agent_env.env.http1 import Request, Response
from agent_env.env.service import Service
from agent_env.episode.env_client import EnvClient
from agent_env.episode.introduction import Introduction
from agent_env.episode.mcp import MAX_HEADER, MAX_TOOLS

from .doubles import Counter, FakeInstance

TOOL = {"name": "add", "inputSchema": {"type": "object"}}
TOLD = {"card": {"capabilities": {"tools": [TOOL]}}, "session": "abc", "version": "2025-06-18"}


class Introduced(FakeInstance):
    """Tells what its own server would."""

    def __init__(self, told: bytes | None = None) -> None:
        super().__init__(EnvSpec("fake", Path("/"), "0" * 64), 0, Counter())
        assert self._app is not None
        self._told = self._app.introduction() if told is None else told
        self.methods: list[str] = []
        """What was asked over MCP."""
        handle = self._app.handle

        async def heard(request: Request) -> Response:
            if request.path == "/mcp":
                self.methods.append(json.loads(request.body)["method"])
            return await handle(request)

        self._app.handle = heard  # type: ignore[method-assign]

    @property
    def introduction(self) -> bytes:
        return self._told


async def test_card_and_tools_are_known_without_a_request_and_are_what_a_request_would_bring() -> None:
    introduced, silent = Introduced(), Introduced(b"")
    one, other = EnvClient(introduced), EnvClient(silent)
    known = (await one.card(), await one.mcp_path(), await one.list_tools())
    assert introduced.connections == 0
    assert known == (await other.card(), await other.mcp_path(), await other.list_tools())
    assert silent.connections == 1
    for client, instance in ((one, introduced), (other, silent)):
        client.close()
        await instance.kill()


async def test_a_tool_is_called_in_the_session_that_was_told() -> None:
    instance = Introduced()
    client = EnvClient(instance)
    assert (await client.call_tool("add", {"amount": 2})).text == "the counter is at 2"
    assert (await client.call_tool("add", {"amount": 3})).text == "the counter is at 5"
    assert instance.methods == ["tools/call", "tools/call"]
    client.close()
    await instance.kill()


def test_what_is_told_is_json_that_can_be_read() -> None:
    told = Introduction.parse(App(Service(Counter())).introduction())
    assert told is not None
    assert told.session.tools
    assert {name for name, _ in told.session.headers} == {"mcp-session-id", "mcp-protocol-version"}


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"card": {}, "card": {}}',
        b'{"card"' + b" " * 1000,
        *(
            json.dumps(TOLD | changed).encode()
            for changed in (
                {"card": None},
                {"card": {}},
                {"card": {"capabilities": None}},
                {"card": {"capabilities": {"tools": {}}}},
                {"card": {"capabilities": {"tools": [{}]}}},
                {"card": {"capabilities": {"tools": [TOOL | {"inputSchema": 1}]}}},
                {"card": {"capabilities": {"tools": [TOOL] * (MAX_TOOLS + 1)}}},
                {"session": 1},
                {"session": "a\r\nX: y"},
                {"session": "é"},
                {"session": "a" * (MAX_HEADER + 1)},
                {"version": None},
                {"version": "\n"},
            )
        ),
    ],
)
async def test_nonsense_is_passed_over_and_the_env_is_asked(told: bytes) -> None:
    assert Introduction.parse(told) is None
    instance = Introduced(told)
    client = EnvClient(instance)
    assert [tool.name for tool in await client.list_tools()]
    assert instance.connections == 1
    client.close()
    await instance.kill()


@pytest.mark.parametrize("missing", ["card", "session", "version"])
def test_half_of_it_is_nonsense(missing: str) -> None:
    half: dict[str, Any] = {name: value for name, value in TOLD.items() if name != missing}
    assert Introduction.parse(json.dumps(half).encode()) is None
