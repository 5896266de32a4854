"""Servers that others' SDKs serve: unchanged, forked warm, reached by passed sockets, verified by others' clients.

Their packages are installed, from the index that pip is configured for, into a cache that `AGENT_ENV_PEERS_CACHE` may
name so that it stays for the next run.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_env.sandbox import Verification
from agent_env.sandbox.process import ProcessSandbox
from tests.sandbox.doubles import call, descendants, gone, write_env

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

REQUIREMENTS = "agentenv-framework-protocol==0.1.379\nmcp>=1.25,<2\nfastmcp>=3,<4\n"

SERVERS = {
    "protocol": '''
from typing import Annotated
from pydantic import Field
from agentenv_protocol import AgentEnvEnvironment, environment_card, tool

@environment_card(name="bench")
class Bench(AgentEnvEnvironment):
    @tool(name="echo")
    def echo(self, text: Annotated[str, Field(description="Text.")]) -> str:
        """Return the text."""
        return text

if __name__ == "__main__":
    Bench().serve()
''',
    "official": '''
import os
from mcp.server.fastmcp import FastMCP

app = FastMCP("bench", host=os.environ["MCP_HOST"], port=int(os.environ["MCP_PORT"]), log_level="WARNING")

@app.tool()
def echo(text: str) -> str:
    """Return the text."""
    return text

if __name__ == "__main__":
    app.run(transport="streamable-http")
''',
    "fastmcp": '''
import os
from fastmcp import FastMCP

app = FastMCP("bench")

@app.tool
def echo(text: str) -> str:
    """Return the text."""
    return text

if __name__ == "__main__":
    app.run(transport="http", host=os.environ["MCP_HOST"], port=int(os.environ["MCP_PORT"]))
''',
}

VERIFY = """
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

async def verify(mcp_url):
    async with streamablehttp_client(mcp_url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool("echo", {"text": "hello"})
        return [{"result": result.content[0].text == "hello"}]
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(os.environ.get("AGENT_ENV_PEERS_CACHE") or tmp_path_factory.mktemp("cache"))


@pytest.fixture
async def sandbox(cache: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProcessSandbox]:
    monkeypatch.setenv("AGENT_ENV_CACHE", str(cache))
    box = ProcessSandbox(tier="namespaces")
    try:
        yield box
    finally:
        await box.close()


@pytest.mark.parametrize("kind", list(SERVERS))
async def test_server_of_another_sdk_is_forked_warm(sandbox: ProcessSandbox, kind: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    spec = write_env(tmp_path / kind, SERVERS[kind], name=kind, requirements=tmp_path / "requirements.txt")
    begun = time.monotonic()
    await sandbox.prepare(spec)
    prepared = time.monotonic()
    first = await sandbox.deploy(spec, episode_id="first")
    await sandbox.verify(spec, Verification(code=VERIFY, filename="verify.py"), first.connect)
    await first.kill()
    shared = descendants()  # with the fork server for verifiers that import what this one does
    envs = await asyncio.gather(*(sandbox.deploy(spec, episode_id=str(number)) for number in range(4)))
    print(f"{kind}: prepared in {prepared - begun:.1f} s, four up in {time.monotonic() - prepared:.2f} s")
    assert await asyncio.gather(*(call(env, "echo", text=env.id) for env in envs)) == [env.id for env in envs]
    rows = await sandbox.verify(spec, Verification(code=VERIFY, filename="verify.py"), envs[0].connect)
    assert rows == [{"result": True}]
    its = {pid: space for pid, space in descendants().items() if pid not in shared}
    await asyncio.gather(*(env.kill() for env in envs))
    assert await gone(its) == set()
