"""A sandbox of plain objects: envs come up when told, and end when told."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import DeployFailed, EnvInstance, EnvLost, Sandbox, SandboxUnavailable, Tier, Verification


def env_spec(name: str = "echo", digest: str = "d1", **more: Any) -> EnvSpec:
    return EnvSpec(name=name, folder=Path("/nowhere"), digest=digest, **more)


class FakeEnv(EnvInstance):
    def __init__(self, sandbox: FakeSandbox, env: EnvSpec, id: str) -> None:
        self.env = env
        self.id = id
        self.killed = 0
        self.sandbox = sandbox
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def connect(self) -> socket.socket:
        if self._ended.done():
            raise EnvLost(f"env {self.env.name!r} has ended")
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours

    async def wait(self) -> str:
        return await asyncio.shield(self._ended)

    @property
    def output(self) -> str:
        return f"output of {self.id}"

    def crash(self, why: str = "exit status 1") -> None:
        self.sandbox.running.discard(self)
        if not self._ended.done():
            self._ended.set_result(why)

    async def kill(self) -> None:
        await asyncio.sleep(0)
        self.killed += 1
        self.crash("killed")


class FakeSandbox(Sandbox):
    """`most` is how many envs (running or starting) there ever were at once. Set `gate` to hold starts back."""

    def __init__(self, *, unavailable: str | None = None) -> None:
        self.running: set[FakeEnv] = set()
        self.made: list[FakeEnv] = []
        self.asked = 0
        self.most = 0
        self.fail: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = 0
        self.prepared: list[str] = []
        self.unavailable = unavailable
        self._starting = 0
        self._numbers = itertools.count(1)

    async def start(self) -> None:
        if self.unavailable:
            raise SandboxUnavailable(self.unavailable)
        self.tier = Tier("fake", ("everything",), ("nothing",))

    async def prepare(self, env: EnvSpec) -> None:
        self.prepared.append(env.name)

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        self.asked += 1
        self._starting += 1
        self.most = max(self.most, self._starting + len(self.running))
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
            if self.fail:
                raise DeployFailed(self.fail)
            instance = FakeEnv(self, env, f"{env.name}-{next(self._numbers)}")
        finally:
            self._starting -= 1
        self.running.add(instance)
        self.made.append(instance)
        return instance

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        return [{"result": True, "env": env.name}]

    async def close(self) -> None:
        self.closed += 1
        for instance in list(self.running):
            await instance.kill()


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(50):
        await asyncio.sleep(0)
