"""Two sandboxes as one: envs that need an image go to Docker, the others to the process sandbox."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import EnvInstance, Sandbox, SandboxUnavailable, Tier, Verification

__all__ = ["Router", "why_docker"]


def why_docker(env: EnvSpec) -> str | None:
    """Why only Docker can run this env, in words; None if the process sandbox can."""
    if env.needs_docker:
        return env.needs_docker
    return f"it is given as the image {env.image}" if env.image else None


class Router(Sandbox):
    """Sends each env to one of the two. An unavailable Docker is told with the envs that need it."""

    def __init__(self, process: Sandbox | None, docker: Sandbox, envs: Iterable[EnvSpec]) -> None:
        """`process` is None if every env needs Docker."""
        self._process = process
        self._docker = docker
        self._needing = [env for env in envs if why_docker(env)]

    async def start(self) -> None:
        if self._process is not None:
            await self._process.start()
        try:
            await self._docker.start()
        except SandboxUnavailable as error:
            if self._process is not None:
                await self._process.close()
            needing = "; ".join(f"env {env.name!r} needs Docker: {why_docker(env)}" for env in self._needing)
            raise SandboxUnavailable(f"{needing}; but {error}") from error
        self.tier = self._joined_tier()

    async def prepare(self, env: EnvSpec) -> None:
        await self._of(env).prepare(env)

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        return await self._of(env).deploy(env, episode_id=episode_id)

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        return await self._of(env).verify(env, verification, connect)

    async def close(self) -> None:
        await asyncio.gather(*(sandbox.close() for sandbox in (self._process, self._docker) if sandbox is not None))

    def _of(self, env: EnvSpec) -> Sandbox:
        return self._docker if self._process is None or why_docker(env) else self._process

    def _joined_tier(self) -> Tier:
        docker = self._docker.tier
        if self._process is None:
            return docker
        process = self._process.tier
        names = ", ".join(env.name for env in self._needing)
        return Tier(
            f"{process.name}, docker for {names}",
            tuple(text for text in process.gives if text in docker.gives) or process.gives,
            tuple(dict.fromkeys(process.lacks + docker.lacks)),
        )
