"""The official OpenEnv clients and validators, in virtual environments of their own, against our server."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.peers import peer_python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COUNTING = HERE / "counting"
GRIDSIM = ROOT / "bundles" / "gridsim-v1"
VERSIONS = ("openenv==0.10.0", "openenv-core==0.3.0")
TOKEN = "s3cret"
LIMIT = 4
SCENARIOS = (
    "generic_async",
    "generic_sync",
    "multi_turn",
    "tasks_by_seed",
    "subclass",
    "mcp_async",
    "mcp_in_steps",
    "mcp_sync",
    "concurrent_sessions",
    "full_server",
    "harness",
)
NEW_IN_0_10 = {"harness"}
PLAYED = {
    version: [one for one in SCENARIOS if version == "openenv==0.10.0" or one not in NEW_IN_0_10]
    for version in VERSIONS
}


@contextmanager
def serving(bundle: Path, *options: str, port: int | None = None) -> Iterator[str]:
    """`agent-env serve` of the bundle; yields its URL. At the end it is stopped, and must go in good order."""
    if port is None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    command = [sys.executable, "-m", "agent_env.cli", "serve", str(bundle), "--port", str(port), *options]
    environ = {**os.environ, "PROBE_TOKEN": TOKEN}
    server = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    try:
        await_health(f"http://127.0.0.1:{port}", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(30)
        finally:
            server.kill()
            server.wait()


def await_health(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server doesn't answer"
            time.sleep(0.1)


def probe(version: str, url: str, *arguments: str) -> dict[str, str]:
    """Run scenarios with one version's clients: importing them takes seconds, so all in one process."""
    command = [peer_python(version), HERE / "client_probe.py", url, "--limit", str(LIMIT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@functools.cache
def played(version: str) -> dict[str, str]:
    """What one version's clients found, by scenario; played once."""
    with serving(COUNTING, "--max-concurrent-envs", str(LIMIT)) as url:
        found = probe(version, url, *PLAYED[version])
        with urllib.request.urlopen(f"{url}/status") as reply:
            left = json.load(reply)
    assert (left["waiting"], left["episodes"]) == (0, [])
    return found


@pytest.mark.parametrize(
    ("version", "scenario"), [(version, scenario) for version in VERSIONS for scenario in PLAYED[version]]
)
def test_official_clients_play(version: str, scenario: str) -> None:
    assert played(version)[scenario] == "", played(version)[scenario]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_token_works_with_every_official_client(version: str) -> None:
    with serving(COUNTING, "--token-var", "PROBE_TOKEN") as url:
        found = probe(version, url, "with_token", "--token", TOKEN)
    assert found["with_token"] == "", found["with_token"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_hears_of_a_restart_and_the_next_one_plays(version: str) -> None:
    with serving(COUNTING) as url:
        command = [peer_python(version), HERE / "client_probe.py", url, "restart"]
        client = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert client.stdout is not None
        playing = client.stdout.readline()
    if playing != "playing\n":
        pytest.fail(client.communicate()[1][-4000:])
    with serving(COUNTING, port=int(url.rpartition(":")[2])):
        printed, errors = client.communicate("go on\n", timeout=120)
    assert client.returncode == 0, errors[-4000:]
    assert json.loads(printed.splitlines()[-1]) == {"restart": ""}


@pytest.mark.parametrize(
    ("bundle", "calls"),
    [
        (
            COUNTING,
            [{"tool_name": "add", "arguments": {"amount": 3}}, {"tool_name": "multiply"}, {"tool_name": "end_turn"}],
        ),
        (GRIDSIM, [{"tool_name": "submit_schedule", "arguments": {"schedule": [0] * 24}}, {"tool_name": "end_turn"}]),
    ],
    ids=["counting", "gridsim"],
)
def test_the_official_validators_pass(bundle: Path, calls: list[dict[str, object]]) -> None:
    with serving(bundle, "--step-reward", "0") as url:
        command = [peer_python("openenv==0.10.0"), HERE / "validation_probe.py", url, json.dumps(calls)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= 10
    assert {check: problem for check, problem in found.items() if problem} == {}
