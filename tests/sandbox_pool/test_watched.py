"""A full disk shows until an env comes up, over a sandbox of plain objects: no process, no disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent_env.sandbox import DeployFailed, Verification, VerifierFailed, watched
from agent_env.sandbox.docker.errors import EngineError
from agent_env.sandbox.interface import disk_full
from agent_env.sandbox.watched import Watched

from .fakes import FakeSandbox, env_spec, settle

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(watched, "LONGEST_PAUSE", 0.02)


class Disk(FakeSandbox):
    """`error`: what deploys and verifiers fail for."""

    error: BaseException | None = None

    async def deploy(self, env: Any, *, episode_id: str) -> Any:
        if self.fail:
            self.asked += 1
            raise DeployFailed(self.fail) from self.error
        return await super().deploy(env, episode_id=episode_id)

    async def verify(
        self, env: Any, verification: Verification, connect: Callable[[], Awaitable[Any]]
    ) -> list[dict[str, Any]]:
        if self.fail:
            raise VerifierFailed(self.fail) from self.error
        return await super().verify(env, verification, connect)


async def fail(box: Watched, env: Any) -> None:
    with pytest.raises(DeployFailed, match="it is full"):
        await box.deploy(env, episode_id="e")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_full_disk_is_told_until_an_env_comes_up_though_nobody_asks_for_one() -> None:
    inner, env = Disk(), env_spec()
    box = Watched(inner)
    assert box.problem is None
    inner.fail, inner.error = "it is full\nand this was printed", FULL
    await fail(box, env)
    assert box.problem == "it is full"
    await until(lambda: inner.asked > 3)
    assert box.problem == "it is full"
    inner.fail = None
    await until(lambda: box.problem is None)
    await settle()
    assert inner.running == set(), "the one that showed it is gone again"
    asked = inner.asked
    await asyncio.sleep(0.1)
    assert inner.asked == asked, "and no more are made"
    await box.close()


async def test_an_episode_that_is_deployed_ends_the_trouble_of_its_env_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "FIRST_PAUSE", 1000.0)
    inner, one, other = Disk(), env_spec("one"), env_spec("other")
    box = Watched(inner)
    inner.fail, inner.error = "it is full", FULL
    await fail(box, one)
    await fail(box, other)
    inner.fail = None
    await box.deploy(one, episode_id="e")
    assert box.problem == "it is full", "the other env may be on another disk"
    await box.deploy(other, episode_id="e")
    assert box.problem is None
    await box.close()


async def test_failures_of_other_kinds_are_the_envs_own() -> None:
    inner, env = Disk(), env_spec()
    box = Watched(inner)
    inner.fail, inner.error = "it is full of bugs", OSError(errno.EMFILE, "Too many open files")
    await fail(box, env)
    assert box.problem is None


async def test_verifier_that_finds_the_disk_full_tells_too() -> None:
    inner, env = Disk(), env_spec()
    box = Watched(inner)
    inner.fail, inner.error = "it is full", FULL
    with pytest.raises(VerifierFailed):
        await box.verify(env, Verification("", "verify.py"), lambda: asyncio.sleep(0))  # type: ignore[arg-type]
    assert box.problem == "it is full"
    await box.close()
    assert inner.closed == 1


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (FULL, True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (EngineError("the Docker host's disk is full", "disk_full"), True),
        (EngineError("it did not answer", "timeout"), False),
        (None, False),
    ],
)
def test_full_disk_is_known_by_what_an_error_comes_from(error: BaseException | None, full: bool) -> None:
    outer = DeployFailed("no")
    outer.__cause__ = error
    assert disk_full(outer) is full
    assert disk_full(error) is full
