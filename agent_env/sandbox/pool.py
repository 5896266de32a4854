"""A warm pool around a sandbox: deploys are served from fresh envs that were started before they were asked for."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import EnvInstance, EnvLost, Sandbox, Verification
from agent_env.sandbox.shelf import Shelf

__all__ = ["WarmPool"]

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0
"""Seconds in which a warm env must accept a connection when it is handed out."""

STARTS_AT_ONCE = 2
"""How many warm envs are being started at a time: the episodes' own deploys go first."""


class WarmPool(Sandbox):
    """Keeps never-used envs ready, per env, and hands each to exactly one episode.

    An env's shelf is filled once it has been prepared or deployed, and refilled in the background. Live, warm and
    starting envs together stay within `max_live`: a deploy that needs room ends a warm env first. The cap on live
    envs alone is the server's business, not the pool's: a deploy is never refused here.
    """

    def __init__(self, inner: Sandbox, *, warm: int | Mapping[str, int], max_live: int | None = None) -> None:
        """`warm`: how many of each env to keep, or by the env's name (envs not named: none)."""
        self.inner = inner
        self._warm = warm
        self._max_live = max_live
        self._shelves: dict[tuple[str, str], Shelf[EnvInstance]] = {}
        self._live: dict[int, str] = {}
        self._tokens = itertools.count()
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE)
        self._closed = False

    @property
    def warm(self) -> dict[str, int]:
        """Envs ready now, by env name. For metrics."""
        counts: dict[str, int] = {}
        for (name, _), shelf in self._shelves.items():
            counts[name] = counts.get(name, 0) + shelf.ready
        return counts

    @property
    def errors(self) -> dict[str, str]:
        """By env name, why its warm envs can't be kept up; empty if all is well."""
        return {name: shelf.last_error for (name, _), shelf in self._shelves.items() if shelf.last_error}

    async def start(self) -> None:
        await self.inner.start()
        self.tier = self.inner.tier

    async def prepare(self, env: EnvSpec) -> None:
        await self.inner.prepare(env)
        self._shelf(env).fill()

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        shelf = self._shelf(env)
        token = next(self._tokens)
        self._live[token] = episode_id
        try:
            instance = await self._take_warm(shelf)
            if instance is None:
                await self._make_room()
                instance = await self.inner.deploy(env, episode_id=episode_id)
                shelf.recovered()
            else:
                log.debug("episode %s takes warm env %s", episode_id, instance.id)
        except BaseException:
            self._ended(token)
            raise
        self._fill()
        return _Handed(instance, lambda: self._ended(token))

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        return await self.inner.verify(env, verification, connect)

    async def close(self) -> None:
        self._closed = True
        try:
            await asyncio.gather(*(shelf.close() for shelf in self._shelves.values()))
        finally:
            await self.inner.close()

    def _shelf(self, env: EnvSpec) -> Shelf[EnvInstance]:
        key = (env.name, env.digest)
        if key not in self._shelves:
            numbers = itertools.count(1)
            target = self._warm if isinstance(self._warm, int) else self._warm.get(env.name, 0)
            self._shelves[key] = Shelf(
                f"env {env.name!r}",
                lambda: self.inner.deploy(env, episode_id=f"warm-{env.name}-{next(numbers)}"),
                target=0 if self._closed else target,
                starts=self._starts,
                room=self._room,
            )
        return self._shelves[key]

    async def _take_warm(self, shelf: Shelf[EnvInstance]) -> EnvInstance | None:
        """One that still accepts a connection: it may have ended a moment ago, and its watcher not yet have heard."""
        while (instance := shelf.take()) is not None:
            accepted = False
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    (await instance.connect()).close()
                accepted = True
            except (EnvLost, TimeoutError) as error:
                log.warning("a warm %s was lost before it was used: %s", shelf.name, error or "it does not answer")
            finally:
                if not accepted:
                    await instance.kill()
            if accepted:
                return instance
        return None

    def _room(self) -> int:
        if self._max_live is None:
            return 1
        return self._max_live - len(self._live) - sum(shelf.held for shelf in self._shelves.values())

    async def _make_room(self) -> None:
        """The episode that asks is counted as live already."""
        while self._room() < 0:
            fullest = max(self._shelves.values(), key=lambda shelf: shelf.held)
            if not await fullest.shrink():
                return

    def _ended(self, token: int) -> None:
        self._live.pop(token, None)
        self._fill()

    def _fill(self) -> None:
        for shelf in self._shelves.values():
            shelf.fill()


class _Handed(EnvInstance):
    """An env in an episode's hands; tells the pool when its room is free again."""

    def __init__(self, instance: EnvInstance, ended: Callable[[], None]) -> None:
        self.env = instance.env
        self.id = instance.id
        self._instance = instance
        self._ended = ended

    @property
    def introduction(self) -> bytes:
        return self._instance.introduction

    async def connect(self) -> socket.socket:
        return await self._instance.connect()

    async def wait(self) -> str:
        return await self._instance.wait()

    @property
    def output(self) -> str:
        return self._instance.output

    async def kill(self) -> None:
        try:
            await self._instance.kill()
        finally:
            self._ended()
