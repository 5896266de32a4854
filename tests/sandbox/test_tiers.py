"""Which tier is chosen and what it says; the Landlock tier's verifier; the tier without walls."""

from __future__ import annotations

import asyncio
import os
import socket
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import DeployFailed, SandboxUnavailable, Tier, Verification
from agent_env.sandbox.process import ProcessSandbox, probe_tier, tiers
from tests.sandbox.doubles import PROBE, call, descendants, exchange, exists, gone, run, write_env
from tests.sandbox.test_verifier import CLIENT

pytestmark = pytest.mark.integration

TCP = """
import http.server, os

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"hello {os.getpid()}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *args): pass

http.server.ThreadingHTTPServer((os.environ["MCP_HOST"], int(os.environ["MCP_PORT"])), Handler).serve_forever()
"""


async def refuse(name: str) -> None:
    raise DeployFailed(f"Traceback ...\nOSError: [Errno 1] unshare 0x10000000: no {name} here")


async def accept(name: str) -> None:
    return


async def test_probe_finds_namespaces_here() -> None:
    tier, refused = await probe_tier()
    assert tier is not None
    assert (tier.name, refused) == ("namespaces", {})
    assert tier.gives
    assert tier.lacks


async def test_landlock_is_taken_where_namespaces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_try", lambda name: refuse(name) if name == "namespaces" else accept(name))
    box = ProcessSandbox()
    await box.start()
    assert box.tier.name == "landlock"
    await box.close()


async def test_there_is_never_a_silent_fall_to_no_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_try", refuse)
    box = ProcessSandbox()
    with pytest.raises(SandboxUnavailable, match=r"no namespaces here.*no landlock here.*sandbox='unconfined'"):
        await box.start()
    await box.close()


async def test_asked_tier_is_the_one_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_try", lambda name: refuse(name) if name == "namespaces" else accept(name))
    with pytest.raises(SandboxUnavailable, match=r"no namespaces here"):
        await ProcessSandbox(tier="namespaces").start()
    with pytest.raises(SandboxUnavailable, match="there is no tier 'vm'"):
        await ProcessSandbox(tier="vm").start()


async def test_kernel_without_landlock_4_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "abi", lambda: 3)
    tier, refused = await probe_tier(("landlock",))
    assert tier is None
    assert "version 3, and 4 (Linux 6.7) is needed" in refused["landlock"]


def test_every_tier_says_what_it_lacks() -> None:
    for name in tiers.NAMES:
        tier = tiers.describe(name)
        assert isinstance(tier, Tier)
        assert tier.gives
        assert tier.lacks
    assert any("as a whole" in text for text in tiers.describe("namespaces", cgroups=True).gives)
    assert any("for each process" in text for text in tiers.describe("namespaces").lacks)


@pytest.mark.parametrize("name", ["landlock", "unconfined"])
async def test_env_and_verifier_in_the_other_tiers(name: str, probe: EnvSpec) -> None:
    box = ProcessSandbox(tier=name)
    try:
        one, two = await asyncio.gather(*(box.deploy(probe, episode_id=str(number)) for number in range(2)))
        await run(one, "import tempfile; count = 41; open(tempfile.gettempdir() + '/note', 'w').close()")
        assert await run(two, "import os, tempfile; value = os.listdir(tempfile.gettempdir())") == []
        code = f"{CLIENT}\ndef verify(mcp_url):\n    return [{{'score': ask(mcp_url, 'run', code='value=count+1')}}]"
        rows = await box.verify(probe, Verification(code=code, filename="verify.py"), one.connect)
        assert rows == [{"score": 42}]
        folder = await run(one, "import tempfile; value = tempfile.gettempdir()")
        assert exists(folder)
        await one.kill()
        assert not exists(folder)
        await two.kill()
    finally:
        before = descendants()
        await box.close()
    assert await gone(before) == set()
    assert not exists(os.path.dirname(folder))


async def test_landlock_verifier_reaches_its_env_and_nothing_else(probe: EnvSpec, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        code = f"""
        import os, socket
        def verify(mcp_url):
            reached = []
            own = int(mcp_url.split(":")[2].split("/")[0])
            def attempt(name, *kind, to=None):
                try:
                    with socket.socket(*kind) as sock:
                        sock.settimeout(1)
                        if to:
                            sock.connect(to)
                        reached.append(name)
                except OSError:
                    pass
            attempt("own", to=("127.0.0.1", own))
            attempt("other port", to=("127.0.0.1", {other.getsockname()[1]}))
            attempt("unix", socket.AF_UNIX, to={str(tmp_path / "s")!r})
            attempt("udp", socket.AF_INET, socket.SOCK_DGRAM)
            attempt("ipv6", socket.AF_INET6)
            attempt("mptcp", socket.AF_INET, socket.SOCK_STREAM, 262)
            attempt("raw", socket.AF_INET, socket.SOCK_RAW, 1)
            try:
                with socket.socket() as sock:
                    sock.sendto(b"x", 0x20000000, ("127.0.0.1", {other.getsockname()[1]}))
                    reached.append("fast open")
            except OSError:
                pass
            try:
                os.fork() or os._exit(0)
                reached.append("fork")
            except OSError:
                pass
            return [{{"reached": reached}}]
        """
        box = ProcessSandbox(tier="landlock")
        try:
            env = await box.deploy(probe, episode_id="e")
            told = Verification(code=textwrap.dedent(code), filename="verify.py")
            assert await box.verify(probe, told, env.connect) == [{"reached": ["own"]}]
            await env.kill()
        finally:
            await box.close()


async def get(env: Any) -> bytes:
    request = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    return (await exchange(await env.connect(), request)).rpartition(b"\r\n")[2]


@pytest.mark.parametrize("name", ["namespaces", "unconfined"])
async def test_servers_that_bind_a_port_share_none(name: str, tmp_path: Path) -> None:
    box = ProcessSandbox(tier=name)
    spec = write_env(tmp_path / "tcp", TCP, name="tcp")
    try:
        envs = await asyncio.gather(*(box.deploy(spec, episode_id=str(number)) for number in range(4)))
        for env in envs:
            for _ in range(9):  # more than the sockets it began with
                assert (await get(env)).startswith(b"hello")
        await asyncio.gather(*(env.kill() for env in envs))
    finally:
        before = descendants()
        await box.close()
    assert await gone(before) == set()


async def test_landlock_says_that_it_has_no_ports(tmp_path: Path) -> None:
    box = ProcessSandbox(tier="landlock")
    try:
        with pytest.raises(DeployFailed, match=r"(?s)landlock: no env that binds a port.*PermissionError"):
            await box.deploy(write_env(tmp_path / "tcp", TCP, name="tcp"), episode_id="e")
    finally:
        await box.close()


async def test_unconfined_env_has_the_servers_rights(tmp_path: Path) -> None:
    box = ProcessSandbox(tier="unconfined")
    spec = write_env(tmp_path / "e", PROBE)
    try:
        env = await box.deploy(spec, episode_id="e")
        assert await call(env, "run", code=f"open({str(tmp_path / 'x')!r}, 'w').close()") == "null"
        assert (tmp_path / "x").exists()
        await run(env, "import subprocess; subprocess.Popen(['sleep', '600'])")
        before = descendants()
        await env.kill()
        assert len(await gone(before, 0.5)) < len(before) - 1
    finally:
        await box.close()
