"""`ProcessSandbox`: envs and verifiers as processes of this machine, each behind walls of its own. No daemon."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import (
    DeployFailed,
    EnvInstance,
    EnvLost,
    Limits,
    Sandbox,
    Verification,
    VerifierFailed,
)
from agent_env.sandbox.process.cells import Cells
from agent_env.sandbox.process.forkserver import ForkServer, ForkServerEnded
from agent_env.sandbox.process.instance import ProcessEnv
from agent_env.sandbox.process.layout import env_settings
from agent_env.sandbox.process.pace import Pace
from agent_env.sandbox.process.prepared import Prepared, prepare_env
from agent_env.sandbox.process.sweeper import Sweeper
from agent_env.sandbox.process.tiers import choose_tier, describe
from agent_env.sandbox.process.venvs import interpreter_for
from agent_env.sandbox.process.verifiers import Verifiers
from agent_env.sandbox.process.waiting import finish

__all__ = ["ProcessSandbox"]

_PREPARE_SECONDS = 300.0
"""For a fork server and its rehearsal; building a virtual environment comes before it."""
_DEFAULT = Limits()


class ProcessSandbox(Sandbox):
    """One fork server an env, started when the env is first needed; each env deployed is a fork of it.

    limits: for every env and verifier; per_env: by env name, instead of them.
    tier: `namespaces`, `landlock` or `unconfined`; None or `auto`: the stronger of the first two that works here,
    never none. `unconfined` runs envs with this process's own rights: only for bundles that you trust as your own code.

    Fork servers end with the thread that starts them: use a sandbox from an event loop in a thread that stays.
    """

    def __init__(
        self, limits: Limits = _DEFAULT, per_env: Mapping[str, Limits] | None = None, tier: str | None = None
    ) -> None:
        self._limits = limits
        self._per_env = dict(per_env or {})
        self._asked = tier
        self._starting: asyncio.Task[None] | None = None
        self._closed = False
        self._prepared: dict[tuple[str, str], asyncio.Task[Prepared]] = {}
        self._live: set[ProcessEnv] = set()
        self._pace = Pace()
        self._cells: Cells | None = None
        self._sweeper: Sweeper | None = None
        self._verifiers: Verifiers | None = None

    async def start(self) -> None:
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._starting)

    async def prepare(self, env: EnvSpec) -> None:
        await self._ready(env)
        _, verifiers = self._parts()
        await asyncio.shield(verifiers.prepare(await interpreter_for(env)))

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        for again in (True, False):
            prepared = await self._ready(env)
            try:
                async with self._pace.turn():
                    return await self._open(env, prepared.server, prepared.plain, prepared.tcp, "env", episode_id)
            except ForkServerEnded as error:
                if not again:
                    raise DeployFailed(f"env {env.name!r} did not come up: {error}") from None
            except OSError as error:
                raise DeployFailed(f"env {env.name!r} did not come up: {error}") from error
        raise RuntimeError("unreachable")

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        name = verification.filename
        try:
            await self._check_open()
            async with self._pace.turn(), asyncio.timeout(verification.timeout) as deadline:
                interpreter = await interpreter_for(env)
                return await self._parts()[1].run(interpreter, verification, self._limits_of(env), connect)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise VerifierFailed(f"{name} took longer than {verification.timeout:g} s") from None
        except (DeployFailed, ForkServerEnded, EnvLost, OSError) as error:
            raise VerifierFailed(f"{name} could not be run: {error}") from error

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await finish(self._close())

    async def _start(self) -> None:
        name = await choose_tier(self._asked)
        self._cells = Cells(name)
        self._sweeper = self._cells.sweeper()
        self._verifiers = Verifiers(self._cells)
        self.tier = describe(name, cgroups=self._cells.has_cgroups)
        _raise_open_files()

    async def _close(self) -> None:
        tasks = [*self._prepared.values(), *([self._starting] if self._starting else [])]
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(instance.kill() for instance in list(self._live)))
        await asyncio.gather(*(each.server.close() for each in found if isinstance(each, Prepared)))
        if self._verifiers is not None:
            await self._verifiers.close()
        if self._cells is not None:
            self._cells.close()
        if self._sweeper is not None:
            await asyncio.to_thread(self._sweeper.close)

    async def _check_open(self) -> None:
        if self._closed:
            raise DeployFailed("the sandbox is closed")
        await self.start()

    def _parts(self) -> tuple[Cells, Verifiers]:
        if self._cells is None or self._verifiers is None:
            raise RuntimeError("the sandbox isn't started")
        return self._cells, self._verifiers

    def _limits_of(self, env: EnvSpec) -> Limits:
        return self._per_env.get(env.name, self._limits)

    # ---- what all deploys of an env share ----------------------------------------------

    async def _ready(self, env: EnvSpec) -> Prepared:
        await self._check_open()
        if env.needs_docker:
            raise DeployFailed(f"env {env.name!r} needs Docker: {env.needs_docker}")
        key = (str(env.folder), env.digest)
        task = self._prepared.get(key)
        if task is not None and task.done():
            if not task.cancelled() and task.exception() is None and task.result().server.alive:
                return task.result()
            if self._prepared.get(key) is task:
                del self._prepared[key]
            if not task.cancelled() and task.exception() is None:
                await task.result().server.close()  # it has ended by itself; take what is left of it
        if key not in self._prepared:
            task = asyncio.get_running_loop().create_task(self._prepare(env))
            task.add_done_callback(_seen)
            self._prepared[key] = task
        # Shielded: the work is everybody's, also when the one who asked first has no time left.
        return await asyncio.shield(self._prepared[key])

    async def _prepare(self, env: EnvSpec) -> Prepared:
        cells, _ = self._parts()
        interpreter = await interpreter_for(env)
        settings = env_settings(env, interpreter, cells.tier, cells.sdk)

        async def rehearse(server: ForkServer, plain: bool) -> ProcessEnv:
            tcp = False if cells.tier == "landlock" else None
            return await self._open(env, server, plain, tcp, "rehearsal", "rehearsal")

        try:
            async with asyncio.timeout(_PREPARE_SECONDS):
                return await prepare_env(env, interpreter.executable, settings, rehearse)
        except TimeoutError:
            raise DeployFailed(f"env {env.name!r} did not come up within {_PREPARE_SECONDS:g} s") from None
        except ForkServerEnded as error:
            raise DeployFailed(f"env {env.name!r} did not come up: {error}") from None
        except OSError as error:
            raise DeployFailed(f"env {env.name!r} did not come up: {error}") from error

    # ---- one env -----------------------------------------------------------------------

    async def _open(
        self, env: EnvSpec, server: ForkServer, plain: bool, tcp: bool | None, role: str, episode_id: str
    ) -> ProcessEnv:
        cells, _ = self._parts()
        cell = await cells.open(server, role, self._limits_of(env), plain=plain, tcp=tcp is not False)
        name = f"{env.name}-{episode_id[:16]}-{cell.number}"
        instance = ProcessEnv(env, name, cell, on_gone=self._live.discard)
        self._live.add(instance)
        try:
            await instance.ready(tcp=tcp)
        except BaseException:
            await finish(instance.kill())
            raise
        return instance


def _raise_open_files() -> None:
    """Each live env holds three to eight descriptors, and the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _seen(task: asyncio.Task[Any]) -> None:
    """Its error is told by whoever waits for it; if they have all been cancelled, it's no news."""
    if not task.cancelled():
        task.exception()
