"""Verifiers in containers of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import EnvInstance, Verification, VerifierFailed
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.docker.options import EPISODE_LABEL

from .envs import COUNTER, DOCKERFILE, PROBE, make_env

pytestmark = pytest.mark.docker

FILE = "artifacts/check/verify.py"


@pytest.fixture
async def counter(box: DockerSandbox, tmp_path: Path) -> AsyncIterator[EnvInstance]:
    instance = await box.deploy(make_env(tmp_path / "counter", COUNTER, name="counter"), episode_id="e")
    try:
        yield instance
    finally:
        await instance.kill()


async def verify(box: DockerSandbox, env: EnvInstance, code: str, **more: Any) -> list[dict[str, Any]]:
    return await box.verify(env.env, Verification(code=code, filename=FILE, **more), env.connect)


async def test_verifier_reads_its_env_at_mcp_url_and_its_rows_come_back(
    box: DockerSandbox, counter: EnvInstance
) -> None:
    code = """
from agent_env.env.client import data

async def verify(mcp_url, run):
    found = data(mcp_url)
    return [{"result": found["count"] == 0, "score": 0.5, "url": mcp_url, "reply": run.turn(1).reply.text}]
"""
    run = {"turns": [{"prompt_id": "p", "message": {"text": "go"}, "reply": {"text": "done"}}]}
    rows = await verify(box, counter, code, run=run)
    assert rows == [{"result": True, "score": 0.5, "url": "http://127.0.0.1:18765/mcp", "reply": "done"}]


async def test_many_connections_at_once_reach_the_env(box: DockerSandbox, counter: EnvInstance) -> None:
    code = """
import concurrent.futures
from agent_env.env.client import data

def verify(mcp_url):
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: data(mcp_url)["count"], range(40)))
    return [{"result": found == [0] * 40}]
"""
    assert await verify(box, counter, code) == [{"result": True}]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def verify(mcp_url):\n    print('so far')\n    raise ValueError('no such order')",
            "ValueError: no such order",
        ),
        ("def verify(mcp_url: str)\n    pass", "SyntaxError"),
        ("x = 1", "defines no verify"),
        ("def verify(mcp_url): return {'result': True}", "not a list of rows"),
        ("def verify(mcp_url): return [{'score': float('nan')}]", "ValueError: Out of range float"),
        ("import os\ndef verify(mcp_url): os._exit(5)", "ended: exit status 5"),
        ("def verify(mcp_url): return [{'text': 'x' * (20 * 2**20)}]", "its rows are longer than 16 MiB"),
    ],
)
async def test_verifier_that_gives_no_rows_fails_by_name(
    box: DockerSandbox, counter: EnvInstance, code: str, message: str
) -> None:
    with pytest.raises(VerifierFailed) as caught:
        await verify(box, counter, code)
    assert message in str(caught.value)
    assert FILE in str(caught.value)
    assert await verify(box, counter, "def verify(mcp_url): return []") == [], "the env is untouched"


async def test_traceback_and_prints_of_the_verifier_are_shown(box: DockerSandbox, counter: EnvInstance) -> None:
    with pytest.raises(VerifierFailed) as caught:
        await verify(box, counter, "def verify(mcp_url):\n    print('so far')\n    raise ValueError('no such order')")
    assert f'File "{FILE}", line 3' in str(caught.value)
    assert "so far" in str(caught.value)


async def test_verifier_that_misses_its_deadline_is_ended(
    box: DockerSandbox, counter: EnvInstance, engine: Any
) -> None:
    began = time.monotonic()
    with pytest.raises(VerifierFailed, match="took longer than 1 s"):
        await verify(box, counter, "import time\ndef verify(mcp_url): time.sleep(1000)", timeout=1.0)
    assert time.monotonic() - began < 10
    await asyncio.gather(*box._ending)
    assert engine.containers(filters={"label": f"{EPISODE_LABEL}=verifier"}) == []


async def test_verifier_has_no_network_no_rights_and_no_other_way_out(box: DockerSandbox, counter: EnvInstance) -> None:
    code = """
import os, socket

def attempt(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"

def verify(mcp_url):
    return [{
        "interfaces": [name for _, name in socket.if_nameindex()],
        "internet": attempt(socket.create_connection, ("192.0.2.1", 80), 2),
        "metadata": attempt(socket.create_connection, ("169.254.169.254", 80), 2),
        "loopback": attempt(socket.create_connection, ("127.0.0.1", 22), 2),
        "write": attempt(open, "/app/server.py", "w"),
        "socket": attempt(os.unlink, "/run/agentenv/host.sock"),
        "uid": os.getuid(),
        "secrets": [name for name in os.environ if "TOKEN" in name or "DOCKER" in name],
        "processes": len([name for name in os.listdir("/proc") if name.isdecimal()]),
    }]
"""
    assert await verify(box, counter, code) == [
        {
            "interfaces": ["lo"],
            "internet": "OSError",
            "metadata": "OSError",
            "loopback": "ConnectionRefusedError",
            "write": "OSError",
            "socket": "OSError",
            "uid": 65534,
            "secrets": [],
            "processes": 2,
        }
    ]


async def test_env_that_is_gone_leaves_the_verifier_without_rows(box: DockerSandbox, counter: EnvInstance) -> None:
    await counter.kill()
    code = "from agent_env.env.client import data\ndef verify(mcp_url): return [data(mcp_url)]"
    with pytest.raises(VerifierFailed, match="DataError"):
        await verify(box, counter, code)


async def test_warm_verifiers_wait_without_any_code_and_serve_once(engine: Any, tmp_path: Path) -> None:
    env = make_env(tmp_path / "counter", COUNTER, name="counter")
    sandbox = DockerSandbox(warm_verifiers=2)
    await sandbox.start()
    try:
        instance = await sandbox.deploy(env, episode_id="e")
        shelf = sandbox._verifier_shelf(env)
        for _ in range(200):
            if shelf.ready == 2:
                break
            await asyncio.sleep(0.05)
        waiting = {found["Id"] for found in engine.containers(filters={"label": f"{EPISODE_LABEL}=verifier"})}
        assert len(waiting) == 2
        code = "import socket\ndef verify(mcp_url): return [{'host': socket.gethostname()}]"
        used = [(await verify(sandbox, instance, code))[0]["host"] for _ in range(2)]
        assert sorted(used) == sorted(id[:12] for id in waiting), "each served one"
    finally:
        await sandbox.close()


async def test_verifier_under_an_image_without_python3_says_so(box: DockerSandbox, tmp_path: Path) -> None:
    hide = 'RUN ["python3", "-c", "import os; os.remove(\'/usr/local/bin/python3\')"]\n'
    dockerfile = DOCKERFILE.replace("CMD", hide + "CMD").replace('CMD ["python3"', 'CMD ["python"')
    instance = await box.deploy(make_env(tmp_path / "go", PROBE, name="go", dockerfile=dockerfile), episode_id="e")
    with pytest.raises(VerifierFailed, match="its image needs python3"):
        await verify(box, instance, "def verify(mcp_url): return []")
