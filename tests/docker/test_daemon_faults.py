"""A daemon that is missing, old, slow, restarting or full: each told by name, in time, with nothing left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import DeployFailed, SandboxUnavailable, owners
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.docker import sandbox as sandbox_module
from agent_env.sandbox.interface import disk_full

from .envs import COUNTER, make_env
from .fake_daemon import FakeDaemon

pytestmark = pytest.mark.integration


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path) as fake:
        monkeypatch.setenv("DOCKER_HOST", fake.address)
        yield fake


@pytest.fixture
async def box(daemon: FakeDaemon) -> AsyncIterator[DockerSandbox]:
    sandbox = DockerSandbox(daemon_timeout=1.0, warm_verifiers=0)
    await sandbox.start()
    try:
        yield sandbox
    finally:
        await sandbox.close()
        await sandbox._janitor.close()  # it stays where a container may still come up
    assert str(owners.this_owner()) not in [path.name for path in owners.list_folders()]


@pytest.fixture
def env(tmp_path: Path) -> Any:
    return dataclasses.replace(make_env(tmp_path / "env", COUNTER), image="some/image:1")


async def settled(box: DockerSandbox) -> None:
    async with asyncio.timeout(20):
        await asyncio.wait(box._host.removals._tasks)


async def unavailable() -> str:
    with pytest.raises(SandboxUnavailable) as caught:
        await DockerSandbox().start()
    return str(caught.value)


async def test_missing_daemon_says_where_it_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    message = await unavailable()
    assert message.startswith(f"no Docker daemon answers at unix://{tmp_path}/none.sock")
    assert message.endswith("No such file or directory; start it, or point DOCKER_HOST to one")


async def test_daemon_on_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://user@example.org")
    assert "the daemon must run on this machine" in await unavailable()


async def test_old_daemon_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDaemon(tmp_path, api_version="1.40") as fake:
        monkeypatch.setenv("DOCKER_HOST", fake.address)
        assert "speaks API 1.40; 1.41 (Docker 20.10) is needed" in await unavailable()


async def test_daemon_that_does_not_answer_is_given_up(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.answers["GET /version"] = lambda _: time.sleep(3) or (200, {})  # type: ignore[func-returns-value]
    monkeypatch.setattr("agent_env.sandbox.docker.engine.PING_TIMEOUT", 0.5)
    assert "did not answer within 0.5 s" in await unavailable()


@pytest.mark.parametrize(
    ("status", "said", "told"),
    [
        (500, "mkdir /var/lib/docker/overlay2/x: no space left on device", "the Docker host's disk is full"),
        (500, "all predefined address pools have been fully subnetted", "Docker has no free subnet left"),
        (404, "could not find an available, non-overlapping IPv4 address pool among the defaults", "default-address-"),
        (400, "invalid reference format", "Docker refused to start agent-env-env-"),
        (500, "dial unix /run/containerd.sock: no such file", "Docker refused to start agent-env-env-"),
    ],
)
async def test_refused_create_is_told_with_its_cause(
    box: DockerSandbox, daemon: FakeDaemon, env: Any, status: int, said: str, told: str
) -> None:
    daemon.fail("POST /containers/create", status, said)
    with pytest.raises(DeployFailed) as caught:
        await asyncio.wait_for(box.deploy(env, episode_id="e"), 10)
    assert str(caught.value).startswith("env 'env': ")
    assert told in str(caught.value)
    assert said in str(caught.value)
    assert disk_full(caught.value) is ("no space left" in said)


async def test_build_without_room_is_told_as_a_full_disk(
    box: DockerSandbox, daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.fail("GET /images/.*/json", 404, "No such image")
    daemon.answers["POST /build"] = lambda _: (200, {"error": "write /layer.tar: no space left on device"})
    with pytest.raises(DeployFailed, match="does not build: the Docker host's disk is full") as caught:
        await box.deploy(make_env(tmp_path / "built", COUNTER), episode_id="e")
    assert disk_full(caught.value)


async def test_folder_of_sockets_without_room_is_told_as_a_full_disk(
    box: DockerSandbox, env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("agent_env.sandbox.docker.listener.Path.mkdir", full)
    with pytest.raises(DeployFailed, match=r"env 'env': its socket can't be made: .*No space left") as caught:
        await box.deploy(env, episode_id="e")
    assert disk_full(caught.value)


async def test_container_of_a_create_that_timed_out_is_hunted_down(
    box: DockerSandbox, daemon: FakeDaemon, env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_env.sandbox.docker.container.CANCEL_WAIT", 0.1)
    daemon.slow_create(2.0)
    began = time.monotonic()
    with pytest.raises(DeployFailed, match="did not answer within 1 s"):
        await box.deploy(env, episode_id="e")
    assert time.monotonic() - began < 2
    assert box.pending_removals == 1
    await settled(box)
    creates = [request for request in daemon.requests if "/create" in request]
    removed = [request for request in daemon.requests if request.startswith("DELETE")]
    assert len(creates) == 1, "never made a second time"
    assert removed[-1].endswith("v=True&link=False&force=True")
    assert daemon.containers == set()


async def test_cancelled_create_is_removed_once_the_daemon_has_made_it(
    box: DockerSandbox, daemon: FakeDaemon, env: Any
) -> None:
    daemon.slow_create(0.6)
    task = asyncio.create_task(box.deploy(env, episode_id="e"))
    await asyncio.to_thread(daemon.created.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.8)
    assert daemon.containers == set()
    assert any(request.startswith("DELETE") for request in daemon.requests)


async def test_daemon_that_hangs_holds_neither_a_cancellation_nor_the_loop(
    box: DockerSandbox, daemon: FakeDaemon, env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_env.sandbox.docker.container.CANCEL_WAIT", 0.2)
    daemon.slow_create(0.9)
    tasks = [asyncio.create_task(box.deploy(env, episode_id=str(number))) for number in range(24)]
    await asyncio.sleep(0.3)
    began = time.monotonic()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert time.monotonic() - began < 0.8, "those that had not begun are gone, the others are left to the background"
    await settled(box)
    assert daemon.containers == set()
    assert len([request for request in daemon.requests if "/create" in request]) == 8, "one for each thread"


async def test_restarting_daemon_fails_the_deploy_and_serves_the_next(
    box: DockerSandbox, daemon: FakeDaemon, env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_env.sandbox.docker.container.CANCEL_WAIT", 0.1)

    def drop(_: Any) -> Any:
        raise ConnectionAbortedError

    daemon.answers["POST /containers/create"] = drop
    with pytest.raises(DeployFailed, match="is it restarting"):
        await asyncio.wait_for(box.deploy(env, episode_id="e"), 10)
    daemon.fail("POST /containers/create", 400, "it is back")
    with pytest.raises(DeployFailed, match="it is back"):
        await box.deploy(env, episode_id="e")


async def test_missing_image_is_pulled_and_its_absence_told(box: DockerSandbox, daemon: FakeDaemon, env: Any) -> None:
    daemon.fail("GET /images/.*/json", 404, "No such image")
    daemon.fail("POST /images/create", 404, "pull access denied for some/image")
    with pytest.raises(DeployFailed, match="neither on this machine nor in its registry"):
        await box.prepare(env)
    assert any("tag=1" in request and "fromImage=some%2Fimage" in request for request in daemon.requests)


async def test_engine_without_limits_says_so_in_the_tier(daemon: FakeDaemon) -> None:
    daemon.answers["GET /info"] = lambda _: (200, {"MemoryLimit": False, "PidsLimit": False, "SecurityOptions": []})
    sandbox = DockerSandbox()
    await sandbox.start()
    await sandbox.close()
    told = " ".join(sandbox.tier.lacks)
    for what in ("a limit on memory", "a limit on processes", "a seccomp profile"):
        assert what in told
    assert sandbox_module.LACKS[0] in told
