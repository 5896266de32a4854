"""The official MCP SDK's client plays a task at its MCP address."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.conformance.test_openenv_clients import COUNTING, HERE, serving
from tests.peers import peer_python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]


def test_the_official_mcp_client_plays_a_task() -> None:
    with serving(COUNTING) as url:
        command = [peer_python("mcp==1.30.0"), HERE / "mcp_probe.py", f"{url}/counting/train/0/mcp"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == {
        "instructions": "You count.\n\nAdd up to 10.",
        "tools": ["add", "end_turn"],
        "added": [False, "4"],
        "refused": True,
        "ended": {"done": True, "reward": 0.4, "scores": {"score": 0.4}},
    }
