"""Verifiers: what they are given, what they can reach, and how they fail."""

from __future__ import annotations

import asyncio
import socket
import textwrap
from typing import Any

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import EnvInstance, Verification, VerifierFailed
from agent_env.sandbox.process import ProcessSandbox
from agent_env.sandbox.process.verifiers import libraries_of
from tests.sandbox.doubles import descendants, gone, open_files, run

pytestmark = pytest.mark.integration

CLIENT = """
import json, urllib.request

def ask(mcp_url, tool, **arguments):
    def post(message, session=None):
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        headers |= {"Mcp-Session-Id": session} if session else {}
        return urllib.request.urlopen(urllib.request.Request(mcp_url, json.dumps(message).encode(), headers))
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "v", "version": "1"}}
    session = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}).headers["mcp-session-id"]
    call = {"name": tool, "arguments": arguments}
    reply = json.load(post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}, session))
    return json.loads(reply["result"]["content"][0]["text"])
"""


def verification(code: str, **fields: Any) -> Verification:
    return Verification(code=textwrap.dedent(code), filename="artifacts/check/verify.py", **fields)


async def nothing() -> socket.socket:
    raise ConnectionError("no env")


async def deployed(sandbox: ProcessSandbox, probe: EnvSpec) -> EnvInstance:
    return await sandbox.deploy(probe, episode_id="e")


async def test_it_sees_its_env_by_mcp_url(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    env = await deployed(sandbox, probe)
    await run(env, "count = 41")
    code = f"""{CLIENT}
async def verify(mcp_url):
    return [{{"result": True, "score": ask(mcp_url, "run", code="value = count + 1")}}]
"""
    assert await sandbox.verify(probe, verification(code), env.connect) == [{"result": True, "score": 42}]
    await env.kill()


async def test_it_is_given_the_run_if_it_names_it(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    turns = [
        {"prompt_id": "a", "message": {"text": "hi"}, "reply": {"text": "yo"}},
        {"prompt_id": "b", "message": {"text": "more"}, "reply": None},
    ]
    code = """
    def verify(mcp_url, run):
        first, second = run.turns
        assert run.turn(1) is first and run.firings() == () and len(run.as_of(1).turns) == 1
        return [{"texts": [first.number, first.message.text, first.reply.text, second.reply, first.prompt_id]}]
    """
    rows = await sandbox.verify(probe, verification(code, run={"turns": turns}), nothing)
    assert rows == [{"texts": [1, "hi", "yo", None, "a"]}]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def verify(mcp_url):\n    raise ValueError('no such mail')",
            r"ValueError: no such mail .*verify.py, line 2\)",
        ),
        ("def verify(mcp_url):\n    return None", "returned NoneType, not a list of rows"),
        ("def verify(mcp_url):\n    return [1]", "not a list of rows"),
        ("def verify(mcp_url):\n    return [{'score': float('nan')}]", "Out of range float"),
        ("def verify(mcp_url):\n    return [{'score': object()}]", "not JSON serializable"),
        ("verify = 3", "defines no verify"),
        ("def verify(mcp_url:", "SyntaxError"),
        ("import os\ndef verify(mcp_url):\n    os._exit(4)", "gave no rows: exit status 4"),
        ("def verify(mcp_url):\n    raise SystemExit(0)", "SystemExit"),
        ("def verify(mcp_url):\n    return [{'x': 'a' * 2**21}]", "more than 1 MiB of rows"),
        ("import urllib.request as u\ndef verify(mcp_url):\n    u.urlopen(mcp_url)", "urlopen|closed|reset|Remote"),
    ],
)
async def test_failure_is_told(sandbox: ProcessSandbox, probe: EnvSpec, code: str, message: str) -> None:
    with pytest.raises(VerifierFailed, match=f"(?s)verify.py.*({message})"):
        await sandbox.verify(probe, verification(code), nothing)


async def test_missed_deadline_ends_it(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    await sandbox.prepare(probe)
    shared, files = set(descendants()), open_files()
    code = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ndef verify(mcp_url):\n    time.sleep(600)"
    with pytest.raises(VerifierFailed, match=r"verify.py took longer than 0.3 s"):
        await sandbox.verify(probe, verification(code, timeout=0.3), nothing)
    its = {pid: space for pid, space in descendants().items() if pid not in shared}
    assert await gone(its) == set()
    assert open_files() == files


async def test_cancelled_verifications_leave_nothing(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    await sandbox.prepare(probe)
    env = await deployed(sandbox, probe)
    shared, files = set(descendants()), open_files()
    code = CLIENT + "\ndef verify(mcp_url):\n    return [{'x': ask(mcp_url, 'run', code='value=1')}]"
    for step in range(12):
        task = asyncio.ensure_future(sandbox.verify(probe, verification(code), env.connect))
        await asyncio.wait([task], timeout=step * 0.002)
        task.cancel()
        await asyncio.wait([task])
    assert set(descendants()) <= shared
    assert open_files() == files
    await env.kill()


async def test_it_reaches_nothing_but_its_env(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        code = f"""
        import os, socket
        def tried(address):
            try:
                socket.create_connection(address, 1).close()
            except OSError as error:
                return type(error).__name__
            return "connected"
        def verify(mcp_url):
            return [{{
                "host": tried(("127.0.0.1", {listener.getsockname()[1]})),
                "metadata": tried(("169.254.169.254", 80)),
                "processes": [p for p in os.listdir("/proc") if p.isdigit()],
                "files": [p for p in ("/root", "/home", "/etc/shadow", "/sys") if os.path.exists(p) and os.listdir(p)],
                "folder": os.path.exists({str(probe.folder)!r}),
                "user": os.getuid(),
            }}]
        """
        (row,) = await sandbox.verify(probe, verification(code), nothing)
    assert row["host"] == "ConnectionRefusedError"
    assert row["metadata"] == "OSError"  # no route: the network is a loopback
    assert row["processes"] == ["1"]
    assert row["user"] == 1000
    assert not row["folder"]


async def test_its_code_is_nowhere_an_env_can_look(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    search = """
    import re
    pattern = "".join(reversed("24-si-rewsna-eht")).encode()
    value = 0
    with open("/proc/self/mem", "rb", 0) as memory:
        for line in open("/proc/self/maps"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if line.split()[1].startswith("rw"):
                try:
                    memory.seek(start)
                    value += len(re.findall(re.escape(pattern), memory.read(end - start)))
                except (OSError, ValueError):
                    pass
    """
    before = await deployed(sandbox, probe)
    copies = await run(before, search)  # of the pattern, just put together
    code = "def verify(mcp_url):\n    return [{'result': bool('the-answer-is-42')}]"
    await sandbox.verify(probe, verification(code), before.connect)
    after = await deployed(sandbox, probe)
    assert copies >= 1
    assert await run(after, search) <= copies
    await asyncio.gather(before.kill(), after.kill())


@pytest.mark.parametrize(
    ("code", "libraries"),
    [
        ("import json\nfrom agent_env.env.client import data", ()),
        ("from httpx import AsyncClient", ("httpx",)),
        ("def verify(url):\n    import mcp.client.streamable_http, pydantic as p", ("mcp", "pydantic")),
        ("from . import httpx\nfrom .mcp import x", ()),
        ("def verify(:", ()),
        ("x = '\0'", ()),
        ("(" * 10_000, ()),
    ],
)
def test_a_verifier_is_forked_with_the_libraries_that_it_imports(code: str, libraries: tuple[str, ...]) -> None:
    assert libraries_of(code) == libraries


async def test_only_a_verifier_that_imports_a_library_finds_it_there(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    look = "def verify(mcp_url):\n    import sys\n    return [{'result': 'httpx._client' in sys.modules, 'score': 1}]\n"
    [lean] = await sandbox.verify(probe, verification(look), nothing)
    [rich] = await sandbox.verify(probe, verification(f"if False:\n    import httpx\n{look}"), nothing)
    assert (lean["result"], rich["result"]) == (False, True)
