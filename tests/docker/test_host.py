from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.sandbox import owners
from agent_env.sandbox.docker.engine import Engine
from agent_env.sandbox.docker.host import DockerHost, stage_sdk
from agent_env.sandbox.docker.networks import Subnets
from agent_env.sandbox.owners import Owner

from .envs import COUNTER, make_env


def test_what_containers_see_of_us_is_enough_and_no_more(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        stage_sdk(tmp_path / "sdk")
    finally:
        os.umask(before)
    code = "import agent_env.env.client, agent_env.verifying as v; assert v.serve; print(agent_env.__path__)"
    told = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(tmp_path / "sdk")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told.stdout == f"['{tmp_path}/sdk/agent_env']\n", told.stderr
    assert sorted(path.name for path in (tmp_path / "sdk/agent_env").iterdir() if path.name != "__pycache__") == [
        "__init__.py",
        "env",
        "verifying.py",
    ]
    assert all(path.stat().st_mode & 0o005 for path in (tmp_path / "sdk").rglob("*.py")), "another user may read it"


def test_folder_goes_with_its_host_and_names_fit_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "r"
    root.mkdir(mode=0o700)
    monkeypatch.setattr(owners, "_root", lambda: root)
    host = DockerHost(Engine(), Subnets(), 1.0)
    host.open()
    name = host.name(make_env(tmp_path / "env", COUNTER, name="Ünusual/name of an env, and a long one"))
    assert name.isascii()
    assert "/" not in name
    below_root = host.folder(name).relative_to(root) / "host.sock"
    owner = Owner(4194304, 99_999_999_999, "12345678", 4294967295, "12345678")  # up for 31 years
    longest = Path("/run/user/4294967295/agent-env", str(owner), *below_root.parts[1:])
    assert len(str(longest)) < 108
    host.close()
    assert list(root.iterdir()) == []
    host.close()
