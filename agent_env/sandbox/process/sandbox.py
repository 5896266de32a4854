"""`ProcessSandbox`: envs and verifiers as processes of this machine, each behind walls of its own. No daemon."""

from __future__ import annotations

import asyncio
import logging
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
from agent_env.sandbox.process.cgroups import Cgroup, Cgroups
from agent_env.sandbox.process.forkserver import ForkServer, ForkServerEnded, passed_sockets
from agent_env.sandbox.process.inside import passing
from agent_env.sandbox.process.inside.settings import Spawn
from agent_env.sandbox.process.instance import ProcessEnv
from agent_env.sandbox.process.layout import Interpreter, env_settings, verifier_settings
from agent_env.sandbox.process.prepared import Prepared, prepare_env
from agent_env.sandbox.process.tiers import choose_tier
from agent_env.sandbox.process.verifier import PRELOADED, run_verifier
from agent_env.sandbox.process.waiting import finish, readable

__all__ = ["ProcessSandbox"]

_PREPARE_SECONDS = 300.0
"""For a fork server and its rehearsal; a virtual environment's time comes before it."""

_log = logging.getLogger(__name__)


class ProcessSandbox(Sandbox):
    """One fork server an env, started by its first deploy; each env a fork of it.

    limits: for every env and verifier; per_env: by env name, instead of them.
    tier: `namespaces`, `landlock` or `unconfined`; None or `auto`: the stronger of the first two that works here,
    never none. `unconfined` runs envs with this process's own rights: only for bundles that you trust as yourself.
    """

    def __init__(
        self,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        per_env: Mapping[str, Limits] | None = None,
        tier: str | None = None,
    ) -> None:
        self._limits = limits
        self._per_env = dict(per_env or {})
        self._asked = tier
        self._cgroups: Cgroups | None = None
        self._started = False
        self._closed = False
        self._prepared: dict[tuple[str, str], asyncio.Task[Prepared]] = {}
        self._verifiers: dict[Interpreter, asyncio.Task[ForkServer]] = {}
        self._live: set[ProcessEnv] = set()
        self._count = 0

    async def start(self) -> None:
        if self._started:
            return
        self.tier = await choose_tier(self._asked)
        self._cgroups = Cgroups.find() if self.tier.name == "namespaces" else None
        _raise_open_files()
        self._started = True

    async def prepare(self, env: EnvSpec) -> None:
        prepared = await self._ready(env)
        self._verifier(await self._interpreter(env))
        _log.debug("env %r is prepared: plain %s, tcp %s", env.name, prepared.plain, prepared.tcp)

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        for again in (True, False):
            prepared = await self._ready(env)
            try:
                return await self._spawn(env, prepared.server, prepared.plain, prepared.tcp, "env", episode_id)
            except ForkServerEnded as error:
                if not again:
                    raise DeployFailed(f"env {env.name!r} did not come up: {error}") from None
        raise AssertionError("unreachable")

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        try:
            async with asyncio.timeout(verification.timeout) as deadline:
                server = await asyncio.shield(self._verifier(await self._interpreter(env)))
                return await self._verify(env, server, verification, connect)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise VerifierFailed(f"{verification.filename} took longer than {verification.timeout:g} s") from None
        except (DeployFailed, ForkServerEnded, EnvLost, OSError) as error:
            raise VerifierFailed(f"{verification.filename} could not be run: {error}") from error

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        tasks: list[asyncio.Task[Any]] = [*self._prepared.values(), *self._verifiers.values()]
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(instance.kill() for instance in list(self._live)))
        servers = [found.server if isinstance(found, Prepared) else found for found in results]
        await asyncio.gather(*(server.close() for server in servers if isinstance(server, ForkServer)))
        if self._cgroups is not None:
            self._cgroups.close()

    # ---- what deploys share ------------------------------------------------------------

    async def _ready(self, env: EnvSpec) -> Prepared:
        await self._check_open()
        if env.needs_docker:
            raise DeployFailed(f"env {env.name!r} needs Docker: {env.needs_docker}")
        key = (str(env.folder), env.digest)
        task = self._prepared.get(key)
        if task is None or (task.done() and await _failed(task, lambda prepared: prepared.server)):
            if self._prepared.get(key) is task:
                self._prepared[key] = asyncio.get_running_loop().create_task(self._prepare(env))
            task = self._prepared[key]
        # Shielded: the work is everybody's, also when the one who asked first has no time left.
        return await asyncio.shield(task)

    async def _prepare(self, env: EnvSpec) -> Prepared:
        interpreter = await self._interpreter(env)
        settings = env_settings(env, interpreter, self.tier.name)

        async def rehearse(server: ForkServer, plain: bool) -> ProcessEnv:
            tcp = None if self.tier.name == "namespaces" else False
            return await self._spawn(env, server, plain, tcp, "rehearsal", "rehearsal")

        try:
            async with asyncio.timeout(_PREPARE_SECONDS):
                return await prepare_env(env, interpreter.executable, settings, rehearse)
        except TimeoutError:
            raise DeployFailed(f"env {env.name!r} did not come up within {_PREPARE_SECONDS:g} s") from None
        except ForkServerEnded as error:
            raise DeployFailed(f"env {env.name!r} did not come up: {error}") from None

    def _verifier(self, interpreter: Interpreter) -> asyncio.Task[ForkServer]:
        task = self._verifiers.get(interpreter)
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().alive)):
            task = asyncio.get_running_loop().create_task(self._start_verifiers(interpreter))
            self._verifiers[interpreter] = task
        return task

    async def _start_verifiers(self, interpreter: Interpreter) -> ForkServer:
        settings = verifier_settings(interpreter, self.tier.name)
        server = await ForkServer.start(interpreter.executable, settings)
        try:
            refused = await server.preload(list(PRELOADED))
            if refused is None:
                return server
            _log.warning("verifiers start cold under %s: %s by a library", interpreter.executable, refused)
        except ForkServerEnded:
            _log.warning("verifiers start cold under %s: a library ended their fork server", interpreter.executable)
        except BaseException:
            await finish(server.close())
            raise
        await server.close()
        return await ForkServer.start(interpreter.executable, settings)

    async def _interpreter(self, env: EnvSpec) -> Interpreter:
        return Interpreter.own()

    async def _check_open(self) -> None:
        if self._closed:
            raise DeployFailed("the sandbox is closed")
        if not self._started:
            await self.start()

    # ---- one child ---------------------------------------------------------------------

    async def _spawn(
        self, env: EnvSpec, server: ForkServer, plain: bool, tcp: bool | None, role: str, episode_id: str
    ) -> ProcessEnv:
        limits = self._per_env.get(env.name, self._limits)
        self._count += 1
        order = self._order(limits, role, plain=plain, tcp=tcp is not False)
        cgroup = self._cgroup(limits)
        try:
            child = await server.spawn(order, keep_output=limits.output_kib << 10)
        except BaseException:
            if cgroup is not None:
                await finish(cgroup.remove())
            raise
        name = f"{env.name}-{episode_id[:12]}-{self._count}"
        instance = ProcessEnv(env, name, server, child, limits, cgroup, self._live.discard)
        self._live.add(instance)
        try:
            await instance.ready(tcp=tcp)
        except BaseException:
            await finish(instance.kill())
            raise
        return instance

    def _order(self, limits: Limits, role: str, *, plain: bool = False, tcp: bool = False) -> Spawn:
        return Spawn(
            role=role,
            plain=plain,
            tcp=tcp,
            name=f"{'env' if role != 'verifier' else 'verify'}-{self._count}",
            memory=limits.memory_mib << 20,
            processes=limits.processes,
            cpu_seconds=limits.cpu_seconds,
            open_files=limits.open_files,
            file_size=max(limits.tmp_mib, 1) << 20,
            tmp_size=limits.tmp_mib << 20,
        )

    def _cgroup(self, limits: Limits) -> Cgroup | None:
        if self._cgroups is None:
            return None
        try:
            return self._cgroups.make(limits)
        except OSError as error:
            _log.warning("envs run without a cgroup of their own: %s", error)
            self._cgroups = None
            return None

    async def _verify(
        self,
        env: EnvSpec,
        server: ForkServer,
        verification: Verification,
        connect: Callable[[], Awaitable[socket.socket]],
    ) -> list[dict[str, Any]]:
        limits = self._per_env.get(env.name, self._limits)
        self._count += 1
        cgroup = self._cgroup(limits)
        try:
            child = await server.spawn(self._order(limits, "verifier"), stream=True)
            try:
                if cgroup is not None:
                    cgroup.add(child.pid)
                await readable(child.channel.fileno())
                message, fds = passing.receive(child.channel)
                if message != b"sockets":
                    raise VerifierFailed(f"no sandbox could be made for the verifier: {child.output.text.strip()}")
                return await run_verifier(child, verification, passed_sockets(fds)[0], connect)
            finally:
                await finish(child.kill())
        finally:
            if cgroup is not None:
                await finish(cgroup.remove())


async def _failed(task: asyncio.Task[Any], server: Callable[[Any], ForkServer]) -> bool:
    """Whether its result is of no use any more; then what is left of it is closed."""
    if task.cancelled() or task.exception() is not None:
        return True
    found = server(task.result())
    if found.alive:
        return False
    await found.close()
    return True


def _raise_open_files() -> None:
    """Each live env holds three to eight descriptors, and the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
