"""Cgroup folders of both versions, on trees made for the test; the kernel's own are tried by the hostile envs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent_env.sandbox import Limits
from agent_env.sandbox.owners import this_owner
from agent_env.sandbox.process import cgroups
from agent_env.sandbox.process.cgroups import Cgroups

LIMITS = Limits(memory_mib=8, processes=5)
DEAD = str(this_owner()).replace(f"{os.getpid()}-", "999999999-", 1)


@pytest.fixture(autouse=True)
def _plain_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel removes a cgroup with the files in it; on a plain file system nobody does."""

    def remove(folder: Path) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return True

    monkeypatch.setattr(cgroups, "_remove", remove)


def tree_v1(top: Path) -> str:
    for name in ("memory", "pids", "cpu"):
        (top / name / "ours").mkdir(parents=True)
    return "3:memory:/ours\n2:pids:/elsewhere\n1:cpu,cpuacct:/ours\n0::/\n"


def tree_v2(folder: Path, enabled: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.subtree_control").write_text(enabled)


def test_version_1_has_a_folder_in_each_hierarchy(tmp_path: Path) -> None:
    own = tree_v1(tmp_path)
    found = Cgroups.find(tmp_path, own)
    assert found is not None
    made = found.make(LIMITS)
    for folder in made.folders:
        (folder / "tasks").touch()  # by the kernel, in its own tree
    doors = made.open_doors()
    for door in doors:
        os.write(door, b"0")
        os.close(door)
    names = [folder.relative_to(tmp_path).parts[:3] for folder in made.folders]
    assert names == [
        ("memory", "ours", "agent-env"),
        ("pids", "agent-env", str(this_owner())),
        ("cpu", "ours", "agent-env"),
    ]
    assert (made.folders[0] / "memory.limit_in_bytes").read_text() == str(8 << 20)
    assert (made.folders[1] / "pids.max").read_text() == "5"
    assert [(folder / "tasks").read_text() for folder in made.folders] == ["0"] * 3


@pytest.mark.parametrize("delegated", [True, False])
def test_version_2_needs_delegated_controllers(
    tmp_path: Path, delegated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    own = tmp_path / "user.slice" / "app"
    if delegated:
        for folder in (own, own / "agent-env", own / "agent-env" / str(this_owner())):
            tree_v2(folder)
    else:
        own.mkdir(parents=True)  # no file there that this user may write
    found = Cgroups.find(tmp_path, "0::/user.slice/app\n")
    assert (found is not None) is delegated
    if found is not None:
        made = found.make(LIMITS)
        (folder,) = made.folders
        assert (folder / "memory.max").read_text() == str(8 << 20)
        assert (folder / "memory.oom.group").read_text() == "1"
        assert made.door == "cgroup.procs"
        assert (folder / "pids.max").read_text() == "5"
        assert (own / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"


def test_only_dead_owners_are_reaped(tmp_path: Path) -> None:
    own = tree_v1(tmp_path)
    top = tmp_path / "memory" / "ours" / "agent-env"
    for name in (DEAD, str(this_owner()), "somebody-elses"):
        (top / name / "1").mkdir(parents=True)
    assert Cgroups.find(tmp_path, own) is not None
    assert sorted(path.name for path in top.iterdir()) == sorted([str(this_owner()), "somebody-elses"])


@pytest.mark.parametrize(("text", "killed"), [("oom_kill 0", False), ("oom_kill 2", True), ("under_oom 1", False)])
def test_out_of_memory_is_what_the_kernel_counted(tmp_path: Path, text: str, killed: bool) -> None:
    found = Cgroups.find(tmp_path, tree_v1(tmp_path))
    assert found is not None
    made = found.make(LIMITS)
    assert not made.out_of_memory()
    made.events.write_text(f"oom_kill_disable 0\n{text}\n")
    assert made.out_of_memory() is killed


def made_by_the_kernel(made: cgroups.Cgroup, processes: str = "", kills: int = 0) -> cgroups.Cgroup:
    """The files that a real one has."""
    (made.folders[0] / "cgroup.procs").write_text(processes)
    made.events.write_text(f"oom_kill {kills}\n")
    return made


async def test_an_empty_one_is_used_again_under_the_same_limits_only(tmp_path: Path) -> None:
    found = Cgroups.find(tmp_path, tree_v1(tmp_path))
    assert found is not None
    made = made_by_the_kernel(found.make(LIMITS))
    await made.release()
    assert all(folder.exists() for folder in made.folders)
    assert found.make(Limits(memory_mib=16, processes=5)).folders != made.folders
    assert found.make(LIMITS).folders == made.folders
    assert found.make(LIMITS).folders != made.folders  # it has one user at a time


@pytest.mark.parametrize(("processes", "kills"), [("12\n", 0), ("", 1)])
async def test_one_with_processes_or_a_kill_is_not_used_again(tmp_path: Path, processes: str, kills: int) -> None:
    found = Cgroups.find(tmp_path, tree_v1(tmp_path))
    assert found is not None
    made = made_by_the_kernel(found.make(LIMITS), processes, kills)
    await made.release()
    assert not any(folder.exists() for folder in made.folders)


async def test_so_many_are_kept_and_none_after_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "_KEPT", 2)
    found = Cgroups.find(tmp_path, tree_v1(tmp_path))
    assert found is not None
    made = [made_by_the_kernel(found.make(LIMITS)) for _ in range(4)]
    for one in made[:3]:
        await one.release()
    assert [one.folders[0].exists() for one in made] == [True, True, False, True]
    found.close()
    await made[3].release()
    assert not any(one.folders[0].exists() for one in made)
