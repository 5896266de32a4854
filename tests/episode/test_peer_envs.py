"""Env servers that others' SDKs serve, and public bundles, play like ours. Their packages are installed once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import Bundle, load_bundle
from agent_env.episode import Episode, ErrorKind
from agent_env.sandbox.process import ProcessSandbox
from tests.peers import public_examples
from tests.public_bundles import EXAMPLES, copy_example, plays

from .doubles import write_bundle

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

OURS = """
from agent_env.env import Env, serve, tool


class Adder(Env):
    def __init__(self) -> None:
        self.total = 0

    @tool
    def add(self, amount: int) -> str:
        "Add to the total."
        self.total += amount
        return str(self.total)

    @tool
    def fail(self, why: str) -> str:
        "Fail."
        raise RuntimeError(why)

    @tool(hidden=True)
    def reveal(self) -> str:
        "For the verifier."
        return f"total {self.total}"


if __name__ == "__main__":
    serve(Adder)
"""
PROTOCOL = """
from agentenv_protocol import AgentEnvEnvironment, environment_card, tool


@environment_card(name="adder")
class Adder(AgentEnvEnvironment):
    total = 0

    @tool(name="add")
    def add(self, amount: int) -> str:
        "Add to the total."
        self.total += amount
        return str(self.total)

    @tool(name="fail")
    def fail(self, why: str) -> str:
        "Fail."
        raise RuntimeError(why)

    @tool(name="reveal", hidden_by_default=True)
    def reveal(self) -> str:
        "For the verifier."
        return f"total {self.total}"


if __name__ == "__main__":
    Adder().serve()
"""
TOOLS = """
total = 0


@server.tool()
def add(amount: int) -> str:
    "Add to the total."
    global total
    total += amount
    return str(total)


@server.tool()
def fail(why: str) -> str:
    "Fail."
    raise RuntimeError(why)


@server.tool(meta={"agentenv.io/hiddenByDefault": True})
def reveal() -> str:
    "For the verifier."
    return f"total {total}"

"""
OFFICIAL = f"""
import os
from mcp.server.fastmcp import FastMCP
server = FastMCP("adder", host="127.0.0.1", port=int(os.environ["MCP_PORT"]), json_response=%s, stateless_http=%s)
{TOOLS}
server.run("streamable-http")
"""
FASTMCP = f"""
import os
from fastmcp import FastMCP
server = FastMCP("adder")
{TOOLS}
server.run("http", host="127.0.0.1", port=int(os.environ["MCP_PORT"]))
"""
KINDS = {
    "ours": (OURS, ""),
    "agentenv-framework-protocol": (PROTOCOL, "agentenv-framework-protocol==0.1.379\nmcp>=1.25,<2\n"),
    "mcp": (OFFICIAL % (False, False), "mcp==1.30.0\n"),
    "mcp with JSON replies and no sessions": (OFFICIAL % (True, True), "mcp==1.30.0\n"),
    "fastmcp": (FASTMCP, "fastmcp==3.4.11\n"),
}
VERIFY = """
import json
import urllib.request


def verify_message(mcp_url, headers, **message):
    request = urllib.request.Request(mcp_url, json.dumps({"jsonrpc": "2.0", **message}).encode(), {
        "Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers})
    with urllib.request.urlopen(request) as response:
        return response.headers.get("mcp-session-id"), response.read().decode()


async def verify(mcp_url, run=None):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "verifier", "version": "1"}}
    session, _ = verify_message(mcp_url, {}, id=1, method="initialize", params=hello)
    headers = {"mcp-session-id": session} if session else {}
    verify_message(mcp_url, headers, method="notifications/initialized")
    _, reply = verify_message(mcp_url, headers, id=2, method="tools/call", params={"name": "reveal", "arguments": {}})
    return [{"result": "total 5" in reply and run.turns[0].reply.text == "five"}]
"""
STEPS: list[dict[str, Any]] = [
    {"id": "env", "type": "deploy_env", "env_id": "adder"},
    {"id": "agent", "type": "deploy_agent", "env_ids": ["adder"]},
    {"id": "ask", "type": "prompt_agent", "prompt": "Make five."},
    {
        "id": "five",
        "type": "env_outcome_verifier",
        "env_id": "adder",
        "file_artifact_id": "check",
        "verifier_id": "five",
    },
]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where the envs' virtual environments are kept; in $AGENT_ENV_PEERS_CACHE later runs find them again."""
    folder = os.environ.get("AGENT_ENV_PEERS_CACHE") or str(tmp_path_factory.mktemp("peers"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENT_ENV_CACHE", f"{folder}/envs")
        yield


def adders(folder: Path, server: str, requirements: str) -> Bundle:
    files = {
        "envs/adder/server.py": server,
        "envs/adder/requirements.txt": requirements,
        "envs/adder/Dockerfile": "FROM python:3.11-slim\nWORKDIR /app\nCOPY . .\nRUN pip install -r requirements.txt\n"
        'CMD ["python", "server.py"]\n',
        "artifacts/check/verify.py": VERIFY,
        "tasks/five.json": json.dumps(STEPS),
    }
    return write_bundle(folder, files)


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_server_plays_alike(kind: str, box: ProcessSandbox, tmp_path: Path) -> None:
    bundle = adders(tmp_path / "adders", *KINDS[kind])
    await box.prepare(bundle.envs["adder"])

    async def play(*amounts: int) -> Any:
        episode = Episode(bundle.splits["all"].tasks[0], bundle, box, episode_id="peer")
        try:
            async with asyncio.timeout(60):
                await episode.start()
                assert [tool.name for tool in episode.tools] == ["add", "fail", "end_turn"]
                assert episode.tools[0].description == "Add to the total."
                assert episode.tools[0].input_schema["properties"]["amount"]["type"] == "integer"
                failed = await episode.call("fail", {"why": "no such row"})
                assert failed.error is ErrorKind.EXECUTION
                assert "no such row" in failed.message
                for arguments in ({}, {"amount": "many"}, {"amount": None}):
                    refused = await episode.call("add", arguments)
                    assert refused.error is ErrorKind.INVALID_ARGUMENTS, refused
                    assert "amount" in refused.message
                assert (await episode.call("reveal", {})).error is ErrorKind.UNKNOWN_TOOL
                total = 0
                for amount in amounts:
                    total += amount
                    assert (await episode.call("add", {"amount": amount})).text == str(total)
                return await episode.end_turn("five")
        finally:
            await episode.close()

    played = await asyncio.gather(play(2, 3), play(1), play(5))
    assert [outcome.reward for outcome in played] == [1.0, 0.0, 1.0]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public framework's example bundles, out of its wheel (installed it would shadow our package)."""
    return public_examples(tmp_path_factory.mktemp("wheel"))


@pytest.mark.parametrize("name", EXAMPLES)
async def test_public_bundles_play_once_they_prompt_an_agent(
    name: str, box: ProcessSandbox, examples: Path, tmp_path: Path
) -> None:
    bundle = load_bundle(copy_example(name, examples, tmp_path))
    for env in bundle.envs.values():
        await box.prepare(env)
    await plays(name, bundle, box, timeout=60)
