"""Clients that others wrote use an env of ours. They live in a virtual environment of their own, built once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.env.test_server import started_tcp
from tests.peers import peer_python

pytestmark = [pytest.mark.peers, pytest.mark.timeout(600)]

PACKAGES = ["mcp==1.30.0", "agentenv-framework-protocol==0.1.379"]


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python that has the official clients."""
    return peer_python(*PACKAGES)


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
