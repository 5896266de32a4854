"""An engine whose disk fills up, and has room again. On a small engine of this test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import DeployFailed, VerifierFailed, watched
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.interface import Verification, disk_full
from agent_env.sandbox.watched import Watched

from .engines import Engine
from .envs import PROBE, get, make_env

pytestmark = [pytest.mark.docker, pytest.mark.faults]

VERIFY = Verification("async def verify(mcp_url):\n    return []\n", "verify.py")


@pytest.fixture
def small_engine(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Its disk holds 512 MiB, the image's 100 among them. `engine` has found out that one can be run here."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    own = Engine(Path(f"/tmp/agentenv-docker-full-{os.getpid()}"))
    data = own.folder / "data"
    data.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "none", data], check=True)
    with own.running(monkeypatch):  # whose end takes the mount away as well
        yield own


async def test_full_engine_is_told_and_serves_again_once_there_is_room(
    small_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(watched, "LONGEST_PAUSE", 0.5)
    env = make_env(tmp_path / "probe", PROBE, name="probe")
    box = Watched(DockerSandbox(warm_verifiers=0))
    await box.start()
    filler = small_engine.folder / "data" / "filler"
    try:
        before = await box.deploy(env, episode_id="before")
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        with pytest.raises(DeployFailed, match="env 'probe': the Docker host's disk is full") as told:
            await asyncio.wait_for(box.deploy(env, episode_id="full"), 30)
        assert disk_full(told.value)
        with pytest.raises(VerifierFailed, match="the Docker host's disk is full"):
            await asyncio.wait_for(box.verify(env, VERIFY, before.connect), 30)
        assert "the Docker host's disk is full" in (box.problem or "")
        assert await get(before, "/") == {"path": "/"}, "what runs goes on"
        filler.unlink()
        async with asyncio.timeout(30):
            while box.problem is not None:
                await asyncio.sleep(0.1)
        after = await asyncio.wait_for(box.deploy(env, episode_id="after"), 30)
        assert await get(after, "/") == {"path": "/"}
        assert await asyncio.wait_for(box.verify(env, VERIFY, after.connect), 30) == []
    finally:
        await box.close()
    assert small_engine.containers() == ""
