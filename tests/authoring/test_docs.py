"""docs/authoring.md does what it says: its `bash` blocks, run in order, as a reader would."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "authoring.md").read_text()
BLOCKS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number: int = free.getsockname()[1]
    return number


def await_health(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail("the server did not come up")


@pytest.mark.integration
def test_every_command_of_the_page_runs(tmp_path: Path, port: int) -> None:
    bin_folder = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    folder, servers = tmp_path, []
    try:
        for block in BLOCKS:
            commands = block.replace("8200", str(port))
            if commands.startswith("agent-env serve"):
                servers.append(subprocess.Popen(["bash", "-c", f"exec {commands}"], cwd=folder, env=environ))
                await_health(port, servers[-1])
                continue
            command = ["bash", "-ec", f"{commands}\npwd > {tmp_path}/where"]
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=110)
            assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
            folder = Path((tmp_path / "where").read_text().strip())
    finally:
        for server in servers:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) in (0, -signal.SIGTERM)
    rows = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "data").glob("*.jsonl")}
    assert rows == {"all.jsonl": 3, "eval.jsonl": 2}


def test_the_page_knows_every_kind_of_finding() -> None:
    source = (ROOT / "agent_env" / "authoring" / "findings.py").read_text()
    kinds = set(re.findall(r'Finding\(\s*"(\w+)"', source))
    assert kinds == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert len(kinds) == 6
