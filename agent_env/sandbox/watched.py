"""A sandbox whose trouble with a full disk shows: from the first deploy that it fails until an env comes up again."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import EnvInstance, Sandbox, SandboxError, Verification, disk_full

__all__ = ["Watched"]

log = logging.getLogger(__name__)

FIRST_PAUSE = 2.0
LONGEST_PAUSE = 30.0
"""Seconds between two tries whether there is room again. Nobody may ask for an env meanwhile: a load balancer sends
nobody to a server that is unhealthy."""

LONGEST_PROBLEM = 500


class Watched(Sandbox):
    """Passes everything on to `inner`, and remembers which envs a full disk keeps from being deployed.

    An env that failed so is deployed anew in the background, until it comes up; nothing is refused meanwhile.
    """

    def __init__(self, inner: Sandbox) -> None:
        self.inner = inner
        self._problems: dict[tuple[str, str], str] = {}
        self._tries: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._closed = False

    @property
    def problem(self) -> str | None:
        """What is wrong and with which env, in a line; None if all is well."""
        return next(iter(self._problems.values()), None)

    @property
    def troubled(self) -> list[str]:
        """The names of the envs that a full disk keeps from being deployed."""
        return sorted({name for name, _ in self._problems})

    async def start(self) -> None:
        await self.inner.start()
        self.tier = self.inner.tier

    async def prepare(self, env: EnvSpec) -> None:
        try:
            await self.inner.prepare(env)
        except SandboxError as error:
            self._failed(env, error)
            raise

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        try:
            instance = await self.inner.deploy(env, episode_id=episode_id)
        except SandboxError as error:
            self._failed(env, error)
            raise
        self._came_up(env)
        return instance

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        try:
            return await self.inner.verify(env, verification, connect)
        except SandboxError as error:
            self._failed(env, error)
            raise

    async def close(self) -> None:
        self._closed = True
        tries = list(self._tries.values())
        for task in tries:
            task.cancel()
        if tries:
            await asyncio.wait(tries)
        await self.inner.close()

    def _failed(self, env: EnvSpec, error: SandboxError) -> None:
        key = (env.name, env.digest)
        if self._closed or not disk_full(error):
            return
        if key not in self._problems:
            log.error("no env %r can be deployed until there is room: %s", env.name, error)
        self._problems[key] = _line(error)
        if key not in self._tries:
            task = asyncio.create_task(self._try_again(env), name=f"wait for room for {env.name}")
            self._tries[key] = task
            task.add_done_callback(lambda _: self._tries.pop(key, None))

    def _came_up(self, env: EnvSpec) -> None:
        if self._problems.pop((env.name, env.digest), None) is not None:
            log.info("there is room for env %r again", env.name)

    async def _try_again(self, env: EnvSpec) -> None:
        """Until one comes up, here or for an episode."""
        pause = FIRST_PAUSE
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if (env.name, env.digest) not in self._problems:
                return
            try:
                instance = await self.inner.deploy(env, episode_id="is-there-room")
            except SandboxError as error:
                self._problems[env.name, env.digest] = _line(error)
                continue
            try:
                self._came_up(env)
            finally:
                await instance.kill()
            return


def _line(error: SandboxError) -> str:
    """The first line: what was printed comes after it."""
    return str(error).partition("\n")[0][:LONGEST_PROBLEM]
