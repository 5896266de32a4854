"""The `agent-env serve` command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.cli import main

ROOT = Path(__file__).parents[2]
COUNTING = str(ROOT / "tests" / "conformance" / "counting")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command is refused with."""
    assert main(["serve", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith("agent-env serve: ")
    return told


def test_what_cant_be_served_is_one_line_and_exit_2(capsys, monkeypatch):
    monkeypatch.delenv("NO_TOKEN", raising=False)
    monkeypatch.setenv("EMPTY_TOKEN", "")
    assert "no such folder" in refused(capsys, "nowhere")
    assert "not set" in refused(capsys, COUNTING, "--token-var", "NO_TOKEN")
    assert "empty" in refused(capsys, COUNTING, "--token-var", "EMPTY_TOKEN")
    assert "at least 1 env" in refused(capsys, COUNTING, "--max-concurrent-envs", "0")
    assert "given twice" in refused(capsys, f"train={COUNTING}", f"train={COUNTING}")
    assert "SPLIT=BUNDLE" in refused(capsys, COUNTING, COUNTING)
    assert "give no score 'nothing'" in refused(capsys, COUNTING, "--reward", "nothing")


def test_a_port_in_use_is_one_line_that_names_it(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refused(capsys, COUNTING, "--port", str(port))
    where = f"can't listen on 127.0.0.1:{port}: Address already in use"
    assert told == f"agent-env serve: {where}; choose another with --host and --port\n"


def test_an_address_that_isnt_here_is_one_line(capsys):
    assert "can't listen on 192.0.2.1:8200" in refused(capsys, COUNTING, "--host", "192.0.2.1")
    assert "65535" in refused(capsys, COUNTING, "--port", "65536")


@pytest.mark.integration
@pytest.mark.parametrize(("sig", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_it_says_where_and_what_it_serves_and_stops_cleanly(sig, code):
    environ = {**os.environ, "SERVE_TOKEN": "s3cret-token"}
    command = [sys.executable, "-m", "agent_env.cli", "serve", COUNTING, "--port", "0", "--token-var", "SERVE_TOKEN"]
    server = subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith("Ctrl-C"):
            lines.append(server.stdout.readline())
            assert lines[-1], server.communicate()[1]
        server.send_signal(sig)
        out, errors = server.communicate(timeout=30)
    finally:
        server.kill()
        server.communicate()
    told = "".join(lines)
    assert "Serving counting at http://127.0.0.1:" in told
    assert "all 2, train 2" in told
    assert "8 envs at once" in told
    assert server.returncode == code
    assert "Traceback" not in errors
    assert "s3cret" not in told + out + errors
