from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import Limits
from agent_env.sandbox.docker.container import end_reason
from agent_env.sandbox.docker.images import Image
from agent_env.sandbox.docker.options import Options


def options(**more: Any) -> Options:
    image = Image(
        "sha256:1", "some:1", more.pop("user", ""), ("python3", "server.py"), more.pop("image_environ", {}), ()
    )
    made: dict[str, Any] = {"limits": Limits(), "cpus": 1.0, "labels": {}, "sockets": Path("/s"), "sdk": Path("/k")}
    return Options(name="agent-env-x-1", image=image, **{**made, **more})


@pytest.mark.parametrize("user", ["", "root", "0", "0:0", "root:staff", "0:1000"])
def test_env_never_runs_as_root(user: str) -> None:
    assert options(user=user).user == "65534:65534"


@pytest.mark.parametrize("user", ["1000", "app", "app:staff", "1000:0"])
def test_an_ordinary_user_of_the_image_is_kept(user: str) -> None:
    assert options(user=user).user == user


def test_our_package_comes_before_the_images_own_paths() -> None:
    environment = options(image_environ={"PYTHONPATH": "/srv/lib"}, environ={"MCP_PORT": "18765"}).environment()
    assert environment["PYTHONPATH"] == "/opt/agentenv:/srv/lib"
    assert environment["MCP_PORT"] == "18765"
    assert environment["HOME"] == "/tmp"


def test_only_folders_of_the_task_may_hold_programs() -> None:
    tmpfs = options(limits=Limits(tmp_mib=5), writable=("/app",)).tmpfs()
    assert tmpfs["/tmp"] == "rw,noexec,nosuid,nodev,size=5m,mode=1777"
    assert tmpfs["/app"] == "rw,exec,nosuid,nodev,size=5m,mode=1777"


@pytest.mark.parametrize(
    ("state", "output", "reason"),
    [
        ({"ExitCode": 0}, "", "exit status 0"),
        ({"ExitCode": 137, "OOMKilled": True}, "", "killed: out of memory (1024 MiB)"),
        ({"ExitCode": 137}, "", "killed by signal 9"),
        ({"ExitCode": 3}, "RuntimeError: can't start new thread", "exit status 3 (the limit is 128 processes)"),
        ({"ExitCode": 127, "Error": "no such file"}, "", "no such file"),
        ({"ExitCode": 255}, "", "exit status 255"),
    ],
)
def test_end_is_told_in_words(state: dict[str, Any], output: str, reason: str) -> None:
    assert end_reason(state, Limits(), output) == reason
