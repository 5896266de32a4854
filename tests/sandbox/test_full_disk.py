"""A disk without room: envs are refused with the reason, the server says that it is unhealthy, and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent_env.doctor.finding import Level
from agent_env.doctor.host import disk
from agent_env.doctor.server import check_server
from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.openenv.client import Session
from agent_env.sandbox import DeployFailed, VerifierFailed, watched
from agent_env.sandbox.interface import Verification, disk_full
from agent_env.sandbox.process import ProcessSandbox
from agent_env.sandbox.process.venvs import interpreter_for
from tests.sandbox.doubles import PROBE, write_env

pytestmark = pytest.mark.integration

VERIFY = Verification("async def verify(mcp_url):\n    return []\n", "verify.py")


class SmallDisk:
    """32 MiB at `folder`, of which `fill` takes all, up to the last byte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def empty(self) -> None:
        self._filler.unlink()


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """As $TMPDIR."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m,mode=1777", "none", folder], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        if os.environ.get("AGENT_ENV_REQUIRE_ALL"):
            pytest.fail(f"a small disk can't be mounted: {mounted.stderr}")
        pytest.skip(f"a small disk can't be mounted: {mounted.stderr.strip()}")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


async def test_env_that_could_not_write_is_refused_by_the_name_of_the_disk(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    env = write_env(tmp_path / "e", PROBE)
    box = ProcessSandbox(tier="landlock")
    await box.start()
    try:
        before = await box.deploy(env, episode_id="before")
        small_disk.fill()
        with pytest.raises(
            DeployFailed, match=r"env 'probe' did not come up: .*the disk is full: 0 MiB are left"
        ) as told:
            await box.deploy(env, episode_id="full")
        assert str(small_disk.folder) in str(told.value)
        assert disk_full(told.value)
        with pytest.raises(VerifierFailed, match="the disk is full") as failed:
            await box.verify(env, VERIFY, before.connect)
        assert disk_full(failed.value)
        small_disk.empty()
        await (await box.deploy(env, episode_id="after")).kill()
        assert await box.verify(env, VERIFY, before.connect) == []
    finally:
        await box.close()


async def test_namespaces_tier_needs_no_disk(small_disk: SmallDisk, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", PROBE)
    box = ProcessSandbox(tier="namespaces")
    await box.start()
    try:
        small_disk.fill()
        instance = await box.deploy(env, episode_id="full")
        assert await box.verify(env, VERIFY, instance.connect) == []
    finally:
        await box.close()


async def test_virtual_environment_without_room_is_told_as_a_full_disk(
    small_disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_ENV_CACHE", str(small_disk.folder / "cache"))
    (tmp_path / "e").mkdir()
    requirements = tmp_path / "e" / "requirements.txt"
    requirements.write_text("no-such-package-anywhere==1\n")
    env = write_env(tmp_path / "e", PROBE, requirements=requirements)
    small_disk.fill()
    with pytest.raises(DeployFailed, match=r"env 'probe': .*[Nn]o space left") as told:
        await interpreter_for(env)
    assert disk_full(told.value)


async def test_server_is_unhealthy_while_its_disk_is_full_and_healthy_once_there_is_room(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr(watched, "LONGEST_PAUSE", 0.2)
    app = build_app("gridsim-v1", sandbox="landlock")
    async with serving(app) as url, httpx.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        assert (await http.get("/health")).json() == {"status": "healthy"}
        assert (await http.get("/status")).json()["problem"] is None
        small_disk.fill()

        session = await Session.open(url, timeout=20)
        opened = await session.reset(timeout=60, split="eval", index=0)
        assert opened.done
        assert opened.reward is None, "flagged, and no score"
        assert opened.metadata["reason"] == "deploy_failed"
        assert "the disk is full: 0 MiB are left" in opened.metadata["error"]

        health = await http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "unhealthy")
        assert "a disk of this host is full" in health.json()["reason"]
        assert str(small_disk.folder) not in health.text, "who has no token learns no paths"
        assert (await http.get("/health", params={"alive": "true"})).status_code == 200
        assert str(small_disk.folder) in (await http.get("/status")).json()["problem"]
        (finding,) = [found async for found in check_server(url, None, None, 8)]
        assert finding.level is Level.FAIL
        assert "is unhealthy: " in finding.what
        assert str(small_disk.folder) in finding.what

        small_disk.empty()
        async with asyncio.timeout(30):
            while (await http.get("/health")).status_code != 200:
                await asyncio.sleep(0.05)
        assert (await http.get("/health")).json() == {"status": "healthy"}, "by itself: nobody asked for an env"
        assert (await http.get("/status")).json()["problem"] is None
        assert not (await session.reset(timeout=60, split="eval", index=0)).done
        await session.close()


def test_doctor_tells_a_full_disk(small_disk: SmallDisk) -> None:
    assert disk("temporary files", small_disk.folder / "not" / "there", "x").level is Level.WARN, "32 MiB are little"
    small_disk.fill()
    found = disk("temporary files", small_disk.folder, "set TMPDIR to another disk")
    assert found.level is Level.FAIL
    assert found.fix == "make room, or set TMPDIR to another disk"
