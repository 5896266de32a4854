"""A Docker engine for the tests: the one that DOCKER_HOST names, or a private one of this session."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import Limits
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.docker.options import OWNER_LABEL
from agent_env.sandbox.owners import list_folders, this_owner

SCRIPT = Path(__file__).parents[2] / "scripts/docker_engine.sh"
REQUIRED = ("CI", "AGENT_ENV_REQUIRE_ALL", "AGENT_ENV_REQUIRE_DOCKER")
IMAGE = "agentenv-python:local"


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """The SDK's low-level client of an engine that has the Python image."""
    import docker

    started = False
    if not os.environ.get("DOCKER_HOST"):
        done = subprocess.run([SCRIPT, "start"], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            reason = f"no Docker engine: {done.stderr.strip()}"
            if any(os.environ.get(name) for name in REQUIRED):
                pytest.fail(reason)
            pytest.skip(reason)
        started = "already up" not in done.stderr
        os.environ["DOCKER_HOST"] = done.stdout.strip().removeprefix("export DOCKER_HOST=")
    try:
        api = docker.from_env(timeout=60).api
        if not api.images(IMAGE):
            made = {**os.environ, "PYTHON": sys.executable}
            subprocess.run([SCRIPT, "image", IMAGE], check=True, capture_output=True, env=made, timeout=300)
        yield api
    finally:
        if started:
            subprocess.run([SCRIPT, "stop"], check=True, capture_output=True, timeout=300)
            del os.environ["DOCKER_HOST"]


@pytest.fixture
async def box(engine: Any) -> AsyncIterator[DockerSandbox]:
    """A started sandbox with small limits; nothing of it may be left in the end."""
    sandbox = DockerSandbox(Limits(memory_mib=384, processes=64, tmp_mib=16, output_kib=8), warm_verifiers=0)
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.close()
    assert_nothing_left(engine)


def assert_nothing_left(engine: Any) -> None:
    mine = {"label": f"{OWNER_LABEL}={this_owner()}"}
    assert engine.containers(all=True, filters=mine) == []
    assert engine.networks(filters=mine) == []
    assert str(this_owner()) not in [path.name for path in list_folders()]
