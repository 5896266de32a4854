"""Clients that others wrote use an env of ours. They live in a virtual environment of their own, built once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.env.test_server import started_tcp

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

PACKAGES = ["mcp==1.30.0", "agentenv-framework-protocol==0.1.379"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the official clients; in $AGENT_ENV_PEERS_CACHE, where later runs find it again."""
    cache = os.environ.get("AGENT_ENV_PEERS_CACHE")
    folder = (Path(cache) if cache else tmp_path_factory.mktemp("peers")) / "env-clients"
    found = folder / "bin" / "python"
    if not found.exists() or subprocess.run([found, "-c", "import mcp, agentenv_protocol"], check=False).returncode:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        installed = subprocess.run(
            [found, "-m", "pip", "install", "--quiet", *PACKAGES], capture_output=True, text=True, check=False
        )
        if installed.returncode:
            if os.environ.get("CI"):
                pytest.fail(f"the official clients can't be installed:\n{installed.stderr}")
            pytest.skip(f"the official clients can't be installed: {installed.stderr.strip().splitlines()[-1]}")
    return found


def test_the_official_clients_see_the_env_as_it_is(python: Path) -> None:
    probe = Path(__file__).with_name("peer_probe.py")
    with started_tcp() as (_, port):
        done = subprocess.run(
            [python, probe, f"http://127.0.0.1:{port}"], capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "mcp": {
            "server": "shelf",
            "tools": ["put", "wait", "fail", "give", "peek"],
            "hidden": ["peek"],
            "good": [False, "2 items"],
            "bad": [True, "put: argument times: expected an integer, got the boolean true"],
            "structured": {"items": ["é", "é"]},
        },
        "agentenv": {
            "added": {"items": ["a"]},
            "loaded": {"ok": True},
            "refused": "400 invalid_params: bad items are refused",
            "tools": ["put", "wait", "fail", "give", "peek"],
            "called": "3 items",
        },
    }
