"""Nothing outlives its server, however the server ends."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path

import pytest

from agent_env.sandbox.owners import is_alive
from agent_env.sandbox.process import ProcessSandbox
from agent_env.sandbox.process.cgroups import Cgroups
from tests.sandbox.doubles import gone

pytestmark = pytest.mark.integration

SERVER = [sys.executable, "-m", "tests.sandbox.serve_and_hang"]


async def left_by_killed_server(tier: str, folder: Path, count: int) -> set[int]:
    """Start a server with that many envs, SIGKILL it; those of its processes that are left 2 s later."""
    wait = random.random() * 0.03
    process = await asyncio.create_subprocess_exec(
        *SERVER, tier, str(folder), str(count), str(wait), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 60)
    finally:
        process.kill()
        await process.wait()
    before = {int(pid): (space, at) for pid, (space, at) in json.loads(line)["before"].items()}
    assert len(before) >= count
    return await gone(before, 2.0)


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_killed_server_leaves_no_process(tier: str, tmp_path: Path) -> None:
    assert await left_by_killed_server(tier, tmp_path / "e", 16) == set()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", range(20))
async def test_server_killed_at_any_point_with_64_envs_leaves_no_process(point: int, tmp_path: Path) -> None:
    assert await left_by_killed_server("namespaces", tmp_path / "e", 64) == set(), f"kill number {point}"


async def test_next_start_removes_the_cgroups_of_a_killed_server(tmp_path: Path) -> None:
    cgroups = Cgroups.find()
    if cgroups is None:
        pytest.skip(f"uid {os.getuid()} can't write cgroups here")
    top = cgroups._bases[0].parent
    await left_by_killed_server("namespaces", tmp_path / "e", 2)
    left = {name for name in _folders(top) if not is_alive(name)}  # others may be at work on this machine
    assert left
    box = ProcessSandbox(tier="namespaces")
    await box.start()
    await box.close()
    assert not left & set(_folders(top))
    cgroups.close()
    assert cgroups._bases[0].name not in (_folders(top) if top.exists() else [])


async def test_next_start_removes_the_folders_of_a_killed_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    await left_by_killed_server("landlock", tmp_path / "e", 2)
    assert [name for name in _folders(tmp_path) if name.startswith("agent-env-tmp.")]
    box = ProcessSandbox(tier="landlock")
    await box.start()
    await box.close()
    assert _folders(tmp_path) == ["e"]


def _folders(top: Path) -> list[str]:
    return [path.name for path in top.iterdir() if path.is_dir()]
