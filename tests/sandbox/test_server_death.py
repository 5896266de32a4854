"""Nothing outlives its server, however the server ends."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_env.sandbox.owners import is_alive
from agent_env.sandbox.process import ProcessSandbox
from agent_env.sandbox.process.cgroups import Cgroups
from agent_env.sandbox.process.sweeper import Sweeper
from tests.sandbox.doubles import gone

pytestmark = pytest.mark.integration

SERVER = [sys.executable, "-m", "tests.sandbox.serve_and_hang"]


@dataclass(frozen=True)
class Killed:
    """What was left of a server 2 s after its SIGKILL."""

    processes: set[int]
    folders: list[str]
    """Its cgroups and temporary folders."""


async def kill_server(tier: str, folder: Path, count: int, *, sweeper: bool = True) -> Killed:
    """Start a server with that many envs, and kill it; with `sweeper=False`, what sweeps up after it at first."""
    wait = random.random() * 0.03
    process = await asyncio.create_subprocess_exec(
        *SERVER, tier, str(folder), str(count), str(wait), stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        if not sweeper and told["sweeper"]:
            os.kill(told["sweeper"], signal.SIGKILL)
    finally:
        process.kill()
        await process.wait()
    before = {int(pid): (space, at) for pid, (space, at) in told["before"].items()}
    assert len(before) >= count
    return Killed(await gone(before, 2.0), _left_of(told["owner"]))


def _left_of(owner: str) -> list[str]:
    found = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.endswith(f"/agent-env/{owner}")]
    return found + [str(path) for path in Path(tempfile.gettempdir()).glob(f"agent-env-tmp.{owner}")]


@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_killed_server_leaves_nothing(tier: str, tmp_path: Path) -> None:
    left = await kill_server(tier, tmp_path / "e", 16)
    assert left == Killed(set(), [])


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", range(20))
async def test_server_killed_at_any_point_with_64_envs_leaves_nothing(point: int, tmp_path: Path) -> None:
    left = await kill_server("namespaces", tmp_path / "e", 64)
    assert left == Killed(set(), []), f"kill number {point}"


async def test_next_start_removes_the_cgroups_of_a_killed_server(tmp_path: Path) -> None:
    cgroups = Cgroups.find()
    if cgroups is None:
        pytest.skip(f"uid {os.getuid()} can't write cgroups here")
    top = cgroups._bases[0].parent
    killed = await kill_server("namespaces", tmp_path / "e", 2, sweeper=False)
    assert killed.folders
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
    await kill_server("landlock", tmp_path / "e", 2, sweeper=False)
    assert [name for name in _folders(tmp_path) if name.startswith("agent-env-tmp.")]
    box = ProcessSandbox(tier="landlock")
    await box.start()
    await box.close()
    assert _folders(tmp_path) == ["e"]


async def test_folders_of_a_server_that_lives_are_not_swept_up(tmp_path: Path) -> None:
    """However its end of the pipe came to be closed."""
    kept = tmp_path / "agent-env-tmp.owner" / "base"
    kept.mkdir(parents=True)
    lost, closed = Sweeper(kept, [tmp_path / "agent-env" / "owner"]), Sweeper(kept, [])
    closed.close()
    assert lost._process is not None
    assert lost._process.stdin is not None
    lost._process.stdin.close()
    await asyncio.to_thread(lost._process.wait, 30)
    assert kept.is_dir()
    assert Sweeper(None, []).pid is None, "nothing to wait for"


def _folders(top: Path) -> list[str]:
    return [path.name for path in top.iterdir() if path.is_dir()]
