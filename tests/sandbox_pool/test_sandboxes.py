from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from agent_env.cli import main as cli
from agent_env.sandbox import owners, sandboxes
from agent_env.sandbox.owners import private_folder, this_owner


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders and cgroups of this test's own, and no Docker daemon."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    monkeypatch.setattr(owners, "_root", lambda: root)
    monkeypatch.setattr(sandboxes, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")


def test_folders_and_cgroups_are_listed_and_those_of_dead_owners_pruned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    me, dead = this_owner(), dataclasses.replace(this_owner(), started=1)
    mine, left = private_folder(me), private_folder(dead)
    folders = [tmp_path / f"agent-env-tmp.{owner}" for owner in (me, dead)]
    cgroups = [tmp_path / f"cgroup/pids/agent-env/{owner}" for owner in (me, dead)]
    for folder in (*folders, *cgroups):
        (folder / "1").mkdir(parents=True)
    assert cli(["sandboxes"]) == 0
    told = capsys.readouterr()
    assert "6 in all" in told.out
    assert told.out.count(f"{me.pid}  alive ") == told.out.count(f"{me.pid}  dead ") == 3
    assert "no Docker daemon answers" in told.err
    assert cli(["sandboxes", "--prune"]) == 0
    assert "removed 3 of 3 left by owners that are dead" in capsys.readouterr().out
    assert [mine.exists(), folders[0].exists(), cgroups[0].exists()] == [True] * 3
    assert [left.exists(), folders[1].exists(), cgroups[1].exists()] == [False] * 3


def test_what_can_not_be_removed_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = tmp_path / "cgroup/pids/agent-env" / str(dataclasses.replace(this_owner(), started=1))
    (busy / "1/process").mkdir(parents=True)
    assert cli(["sandboxes", "--prune"]) == 1
    assert "removed 0 of 1" in capsys.readouterr().out
