from __future__ import annotations

from typing import Any

import pytest

from agent_env.sandbox import Limits, Sandbox, SandboxUnavailable, choose
from agent_env.sandbox.choose import make_sandbox
from agent_env.sandbox.pool import WarmPool
from agent_env.sandbox.router import Router

from .fakes import FakeSandbox, env_spec, settle

PLAIN = env_spec("plain")
APT = env_spec("apt", needs_docker="Dockerfile line 3: RUN apt-get install ffmpeg")
IMAGE = env_spec("pulled", image="registry.example/env:1")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeSandbox]:
    sandboxes: dict[str, FakeSandbox] = {}

    def process(kind: str, limits: Limits, per_env: Any) -> Sandbox:
        sandboxes[kind] = FakeSandbox()
        return sandboxes[kind]

    def docker(limits: Limits, per_env: Any) -> Sandbox:
        sandboxes["docker"] = FakeSandbox(unavailable="no Docker daemon answers at unix:///nowhere")
        return sandboxes["docker"]

    monkeypatch.setattr(choose, "_process", process)
    monkeypatch.setattr(choose, "_docker", docker)
    return sandboxes


async def test_envs_without_an_image_get_the_process_sandbox_alone(made: dict[str, FakeSandbox]) -> None:
    assert make_sandbox(envs=[PLAIN], max_live=8) is made["process"]
    assert list(made) == ["process"]


async def test_mixed_envs_each_go_to_the_sandbox_that_can_run_them(made: dict[str, FakeSandbox]) -> None:
    sandbox = make_sandbox("auto", envs=[PLAIN, APT, IMAGE], max_live=2)
    assert isinstance(sandbox, WarmPool)
    assert isinstance(sandbox.inner, Router)
    for env in (PLAIN, APT, IMAGE):
        await sandbox.prepare(env)
    await settle()
    assert made["process"].prepared == ["plain"]
    assert made["docker"].prepared == ["apt", "pulled"]
    made["docker"].unavailable = None
    await sandbox.start()
    assert sandbox.tier.name == "fake, docker for apt, pulled"
    await sandbox.close()


async def test_a_missing_daemon_is_told_with_the_envs_that_need_it(made: dict[str, FakeSandbox]) -> None:
    sandbox = make_sandbox("auto", envs=[PLAIN, APT])
    with pytest.raises(SandboxUnavailable) as caught:
        await sandbox.start()
    assert str(caught.value) == (
        "env 'apt' needs Docker: Dockerfile line 3: RUN apt-get install ffmpeg; "
        "but no Docker daemon answers at unix:///nowhere"
    )
    assert made["process"].closed == 1
    await sandbox.close()


@pytest.mark.parametrize("kind", ["process", "landlock", "unconfined"])
def test_a_process_tier_refuses_an_env_that_needs_docker(kind: str) -> None:
    with pytest.raises(SandboxUnavailable, match=f"env 'apt' needs Docker: Dockerfile line 3.*sandbox='{kind}'"):
        make_sandbox(kind, envs=[PLAIN, APT])


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'firejail' is not known: choose one of auto, process"):
        make_sandbox("firejail", envs=[])


async def test_a_sandbox_given_is_used_as_it_is() -> None:
    given = FakeSandbox()
    assert make_sandbox(given, envs=[APT]) is given


async def test_docker_keeps_four_warm_or_as_many_as_may_live(made: dict[str, FakeSandbox]) -> None:
    for max_live, expected in ((32, 4), (2, 2)):
        sandbox = make_sandbox("docker", envs=[PLAIN], max_live=max_live)
        await sandbox.prepare(PLAIN)
        await settle()
        assert isinstance(sandbox, WarmPool)
        assert sandbox.warm == {"plain": expected}
        await sandbox.close()


async def test_warm_zero_means_no_pool(made: dict[str, FakeSandbox]) -> None:
    assert make_sandbox("docker", envs=[PLAIN], warm=0) is made["docker"]
