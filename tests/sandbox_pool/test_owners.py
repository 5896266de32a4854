from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.sandbox import owners
from agent_env.sandbox.owners import Owner, is_alive, owner_state, private_folder, reap_folders, this_owner


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    monkeypatch.setattr(owners, "_root", lambda: root)
    return root


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    started = owners._start_ticks(process.pid)
    assert started is not None
    return dataclasses.replace(this_owner(), pid=process.pid, started=started)


def test_owner_survives_its_string_form() -> None:
    me = this_owner()
    assert Owner.parse(str(me)) == me
    assert me.pid == os.getpid()
    assert is_alive(me)


@pytest.mark.parametrize("text", ["", "1-2-3", "a-b-c-d-e", "1-2-boot-ns-host", "-1-2-b-3-h"])
def test_what_is_no_owner_is_unknown_and_never_dead(text: str) -> None:
    assert Owner.parse(text) is None
    assert owner_state(text) == "unknown"
    assert is_alive(text)


def test_ended_process_is_dead_even_before_it_is_collected() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(process)
    assert owner_state(owner) == "alive"
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie now
    assert owner_state(owner) == "dead"
    process.wait()
    assert owner_state(owner) == "dead"


def test_a_reused_pid_is_another_owner() -> None:
    assert owner_state(dataclasses.replace(this_owner(), started=this_owner().started - 1)) == "dead"


def test_every_owner_of_an_earlier_boot_is_dead() -> None:
    assert owner_state(dataclasses.replace(this_owner(), boot="00000000", pid_namespace=7)) == "dead"


def test_another_host_or_pid_namespace_cannot_be_judged() -> None:
    assert owner_state(dataclasses.replace(this_owner(), host="00000000", boot="00000000")) == "unknown"
    assert owner_state(dataclasses.replace(this_owner(), pid_namespace=7)) == "unknown"


def test_only_folders_of_dead_owners_are_removed(own_root: Path) -> None:
    mine = private_folder()
    dead = private_folder(dataclasses.replace(this_owner(), started=1))
    (dead / "socket").touch()
    foreign = private_folder(dataclasses.replace(this_owner(), host="00000000"))
    other = own_root / "notes"
    other.mkdir()
    assert reap_folders() == [dead]
    assert mine.is_dir()
    assert foreign.is_dir()
    assert other.is_dir()
    assert reap_folders(this_owner()) == [mine]


def test_private_folder_is_closed_to_others_and_has_a_short_name() -> None:
    folder = private_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(folder.name) < 64


def test_a_root_that_others_can_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    root = Path("/tmp/agent-env")
    if root.exists():
        pytest.skip(f"{root} is in use")
    root.mkdir()
    try:
        root.chmod(0o755)
        with pytest.raises(PermissionError, match="only uid"):
            owners._root()
    finally:
        root.rmdir()
