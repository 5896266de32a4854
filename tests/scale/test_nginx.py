"""nginx with examples/nginx/nginx.conf as the TLS front of two env servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from agent_env.openenv import client
from agent_env.training.rehearsal import read_rows
from tests.scale.hosts import ROOT, Host, play, write_rows

pytestmark = [pytest.mark.peers, pytest.mark.timeout(240)]

TOKEN = "t0ken-through-nginx"
CONFIG = ROOT / "examples" / "nginx" / "nginx.conf"


@contextlib.contextmanager
def nginx(folder: Path, ports: list[int]) -> Iterator[int]:
    """The example's configuration, but for the paths, ports and name of this test. Yields the port."""
    if (binary := shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")) is None:
        pytest.fail("nginx isn't installed") if os.environ.get("CI") else pytest.skip("nginx isn't installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", folder / "envs.key", "-out", folder / "envs.crt"),
        ],
        check=True,
        capture_output=True,
    )
    text = CONFIG.read_text()
    changes = {
        r"worker_processes auto;": f"worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;",
        r"worker_rlimit_nofile .*": "",
        r"worker_connections \d+": "worker_connections 512",
        r"/etc/nginx/tls": str(folder),
        r"listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        r"envs\.example\.org;": "localhost;",
        r"10\.0\.0\.11:8200": f"127.0.0.1:{ports[0]}",
        r"10\.0\.0\.12:8200": f"127.0.0.1:{ports[1]}",
        r"access_log off;": "access_log off; "
        + " ".join(
            f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        ),
    }
    for pattern, replacement in changes.items():
        text, count = re.subn(pattern, replacement, text)
        assert count, f"the example has no {pattern}"
    (folder / "nginx.conf").write_text(text)
    folder.chmod(0o755)  # nginx' workers are another user
    process = subprocess.Popen([binary, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, (folder / "error.log").read_text()
            signal.sigtimedwait([], 0.05)
        yield port
    finally:
        process.send_signal(signal.SIGQUIT if process.poll() is None else 0)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(10)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test's certificate is trusted, as a cluster's own would be."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "envs.crt"))
    client.tls_context.cache_clear()
    yield
    client.tls_context.cache_clear()


@pytest.mark.parametrize("scheme", ["https", "wss"])
async def test_rollouts_pass_through_tls_with_the_token(
    scheme: str, tmp_path: Path, trusted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTENV_TOKEN", TOKEN)
    async with Host(capacity=8, token=TOKEN) as one, Host(capacity=8, token=TOKEN) as other:
        with nginx(tmp_path, [one.port, other.port]) as port:
            url = f"{scheme}://localhost:{port}"
            refused = write_rows(url, tmp_path / "no")
            assert refused.returncode == 2, "no rows without the token"
            done = write_rows(url, tmp_path / "data", "--token-var", "AGENTENV_TOKEN")
            assert done.returncode == 0, done.stderr
            rows = read_rows(tmp_path / "data" / "eval.jsonl")[:4]
            groups = await play(rows, concurrency=16)
            assert [sample.metadata["agentenv"]["end_reason"] for group in groups for sample in group.samples] == [
                "end_turn"
            ] * 32
            shares = [(await host.status())["totals"].get("scored", 0) for host in (one, other)]
    assert sum(shares) == 32
    assert min(shares) >= 8, "least_conn spreads them"
    written = "".join(path.read_text() for path in (tmp_path / "data").iterdir())
    assert TOKEN not in written + (tmp_path / "error.log").read_text()


async def test_a_dead_server_behind_it_loses_no_rollout(
    tmp_path: Path, trusted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTENV_TOKEN", TOKEN)
    async with Host(capacity=32, token=TOKEN) as one, Host(capacity=32, token=TOKEN) as other:
        with nginx(tmp_path, [one.port, other.port]) as port:
            done = write_rows(f"https://localhost:{port}", tmp_path / "data", "--token-var", "AGENTENV_TOKEN")
            assert done.returncode == 0, done.stderr
            rows = read_rows(tmp_path / "data" / "eval.jsonl")[:4]
            playing = asyncio.create_task(play(rows, concurrency=32, think=1.0))
            await one.until_thinking(4)
            await one.kill()
            groups = await playing
    told = [sample.metadata["agentenv"] for group in groups for sample in group.samples]
    assert [one["end_reason"] for one in told] == ["end_turn"] * 32
    assert sum(one["recoveries"] for one in told) >= 4


async def test_a_call_of_more_than_a_minute_is_not_cut(tmp_path: Path, trusted: None) -> None:
    """By a client that does not ping."""
    async with Host(bundle=ROOT / "tests" / "faults" / "bundle", capacity=2) as host:
        with nginx(tmp_path, [host.port, host.port]) as port:
            ws = connect(
                f"wss://localhost:{port}/ws", ssl=client.tls_context(), ping_interval=None, proxy=None, compression=None
            )
            async with ws as socket:

                async def ask(kind: str, data: dict[str, Any]) -> dict[str, Any]:
                    await socket.send(json.dumps({"type": kind, "data": data}))
                    reply: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 90))["data"]
                    return reply

                assert not (await ask("reset", {}))["done"]
                slow = {"type": "call_tool", "tool_name": "slow_add", "arguments": {"x": 2, "seconds": 62}}
                assert "total 2" in str((await ask("step", slow))["observation"])


async def test_a_certificate_that_is_not_trusted_is_named(tmp_path: Path) -> None:
    async with Host(capacity=2) as host:
        with nginx(tmp_path, [host.port, host.port]) as port:
            done = write_rows(f"https://localhost:{port}", tmp_path / "data")
    assert done.returncode == 2
    assert "certificate" in done.stderr
