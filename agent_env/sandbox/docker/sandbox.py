"""Envs in Docker containers: for those that need an image, or for hosts that trust their engine's wall most."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.docker import leftovers
from agent_env.sandbox.docker.engine import Engine
from agent_env.sandbox.docker.errors import EngineError, not_found
from agent_env.sandbox.docker.host import DockerHost
from agent_env.sandbox.docker.images import Image, Images
from agent_env.sandbox.docker.instance import DockerEnv
from agent_env.sandbox.docker.janitor import Janitor
from agent_env.sandbox.docker.launch import Reach, launch
from agent_env.sandbox.docker.networks import DEFAULT_RANGE, Subnets
from agent_env.sandbox.docker.options import SDK_FOLDER, SOCKET_FOLDER
from agent_env.sandbox.docker.verifier import DockerVerifier, VerifierLine
from agent_env.sandbox.interface import (
    DeployFailed,
    EnvInstance,
    Limits,
    Sandbox,
    SandboxUnavailable,
    Tier,
    Verification,
    VerifierFailed,
)
from agent_env.sandbox.owners import reap_folders
from agent_env.sandbox.shelf import Shelf

__all__ = ["DockerSandbox"]

log = logging.getLogger(__name__)

T = TypeVar("T", DockerEnv, DockerVerifier)

GIVES = (
    "a root filesystem of its own, read-only, and a private /tmp",
    "no network",
    "an ordinary user, no capabilities, no new privileges, Docker's seccomp profile",
    "limits on memory, processes, CPU, open files and /tmp",
    "own process, mount, network and IPC namespaces",
)
LACKS = (
    "a kernel of its own: a fault in the host's kernel is within reach",
    "a wall to this machine's network for a server that binds a port in an image without Python: it reaches what"
    " listens here on all addresses, and nothing beyond",
    "a limit on the disk that an image's VOLUMEs use",
)

CLOSE_WAIT = 20.0
VERIFIER_STARTS = 4


class DockerSandbox(Sandbox):
    """One container per env and one per verifier, on the engine that DOCKER_HOST names or the local one.

    A start costs some 170 ms of CPU time, and an end 35, so put a `WarmPool` around this.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        per_env: Mapping[str, Limits] | None = None,
        cpus: float = 1.0,
        networks: str = DEFAULT_RANGE,
        warm_verifiers: int = 4,
        start_timeout: float = 300.0,
        daemon_timeout: float = 60.0,
        start_threads: int = 8,
    ) -> None:
        """per_env: limits by env name, in place of `limits`. cpus: how many CPUs one env may use at a time.
        networks: the IPv4 range that networks for servers without Python are cut from. warm_verifiers: how many
        containers wait for a verifier, per env. start_timeout: seconds from a container's start until its server
        answers. daemon_timeout: seconds for one answer of the Docker daemon. start_threads: how many containers are
        started at a time. Raises ValueError for a range that is none."""
        self.tier = Tier("docker", GIVES, LACKS)
        self._limits = limits or Limits()
        self._per_env = dict(per_env or {})
        self._warm_verifiers = warm_verifiers
        self._start_timeout = start_timeout
        self._engine = Engine(timeout=daemon_timeout, start_threads=start_threads)
        self._host = DockerHost(self._engine, Subnets(networks), cpus)
        self._images = Images(self._engine)
        self._janitor = Janitor()
        self._reaches: dict[tuple[str, str], Reach] = {}
        self._live: set[DockerEnv] = set()
        self._starting: set[asyncio.Task[Any]] = set()
        self._verifiers: dict[tuple[str, str], Shelf[DockerVerifier]] = {}
        self._verifying: set[DockerVerifier] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._verifier_starts = asyncio.Semaphore(VERIFIER_STARTS)
        self._closed = False

    @property
    def pending_removals(self) -> int:
        """Containers whose removal is still going on in the background. For metrics."""
        return self._host.removals.pending

    async def start(self) -> None:
        await self._engine.connect()
        self.tier = Tier("docker", GIVES, (*LACKS, *_engine_lacks(self._engine.info)))
        try:
            await asyncio.to_thread(self._host.open)
            await self._janitor.start()
            await asyncio.to_thread(reap_folders)
            reaped = await self._engine.call("remove what dead servers left", _reap)
        except (OSError, TimeoutError, EngineError) as error:
            await self.close()
            raise SandboxUnavailable(f"the Docker sandbox can't be set up: {error}") from error
        except BaseException:
            await self.close()
            raise
        if reaped:
            log.info("removed %d containers and networks of servers that are gone", reaped)

    async def prepare(self, env: EnvSpec) -> None:
        await self._images.get(env)

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        try:
            try:
                return await self._own(self._deploy(env, episode_id))
            except EngineError as error:
                if not not_found(error):
                    raise
                self._images.forget(env)  # somebody pruned the image under us
                return await self._own(self._deploy(env, episode_id))
        except EngineError as error:
            raise DeployFailed(f"env {env.name!r}: {error}") from error

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        shelf = self._verifier_shelf(env)
        verifier = shelf.take()
        try:
            if verifier is None:
                verifier = await self._own(self._start_verifier(env))
            shelf.fill()
            self._verifying.add(verifier)
            return await verifier.verify(verification, connect)
        except (EngineError, DeployFailed, OSError) as error:
            raise VerifierFailed(f"{verification.filename} can't be run: {error}") from error
        finally:
            if verifier is not None:
                self._verifying.discard(verifier)
                self._drop(verifier)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._starting:
            task.cancel()
        ends = [shelf.close() for shelf in self._verifiers.values()]
        ends += [instance.kill() for instance in self._live]
        ends += [verifier.kill() for verifier in self._verifying]
        try:
            await asyncio.gather(*ends, *self._starting, *self._ending, self._images.close(), return_exceptions=True)
            await self._host.removals.close(CLOSE_WAIT)
        finally:
            self._host.close()
            if not self._host.removals.given_up and not self._host.removals.pending:
                await self._janitor.close()  # else it stays, and tries again when this process has ended
            self._engine.close()

    async def _deploy(self, env: EnvSpec, episode_id: str) -> DockerEnv:
        image = await self._images.get(env)
        key = (env.name, image.id)
        limits = self._per_env.get(env.name, self._limits)
        try:
            async with asyncio.timeout(self._start_timeout):
                container, channel, reach = await launch(
                    self._host, env, image, limits, self._reaches.get(key), episode_id
                )
        except TimeoutError:
            raise DeployFailed(
                f"env {env.name!r}: its server was not reached within {self._start_timeout:g} s; one written with"
                " agent_env.env dials the host by itself, any other must listen on port 18765 (MCP_PORT) of"
                " 127.0.0.1, or on the port that its Dockerfile EXPOSEs"
            ) from None
        except OSError as error:  # no descriptor left, no room for a socket
            raise DeployFailed(f"env {env.name!r}: its socket can't be made: {error}") from error
        self._reaches[key] = reach
        instance = DockerEnv(env, container, channel, self._live.discard)
        self._live.add(instance)
        if reach != "port":  # there is a python3 to run verifiers
            self._verifier_shelf(env).fill()
        return instance

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it as work of this sandbox's own, which `close` ends."""
        task = asyncio.create_task(work)
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        if self._closed:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().kill()  # it came up just as nobody wanted it any more
            caller = asyncio.current_task()
            if caller is not None and not caller.cancelling():
                raise DeployFailed("the sandbox was closed") from None
            raise

    def _verifier_shelf(self, env: EnvSpec) -> Shelf[DockerVerifier]:
        key = (env.name, env.digest)
        if key not in self._verifiers:
            self._verifiers[key] = Shelf(
                f"verifier of env {env.name!r}",
                lambda: self._start_verifier(env),
                target=0 if self._closed else self._warm_verifiers,
                starts=self._verifier_starts,
            )
        return self._verifiers[key]

    async def _start_verifier(self, env: EnvSpec) -> DockerVerifier:
        image: Image = await self._images.get(env)
        limits = self._per_env.get(env.name, self._limits)
        name = self._host.name(env)
        line = VerifierLine(self._host.folder(name))
        verifier: DockerVerifier | None = None
        try:
            options = self._host.options(
                name,
                env,
                image,
                limits,
                episode_id="verifier",
                entrypoint=["python3", f"{SDK_FOLDER}/inside.py", "verify", f"{SOCKET_FOLDER}/host.sock"],
            )
            verifier = DockerVerifier(env, await self._host.start(options), line)
            await verifier.up()
        except BaseException:
            if verifier is not None:
                await verifier.kill()
            line.close()
            raise
        return verifier

    def _drop(self, verifier: DockerVerifier) -> None:
        """Its rows are there: nobody need wait for its end, but `close` does, by way of the removals."""
        task = asyncio.create_task(verifier.kill())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _reap(api: Any) -> int:
    dead = [item for item in leftovers.find(api) if item.state == "dead"]
    return leftovers.remove(api, dead) if dead else 0


def _engine_lacks(info: Mapping[str, Any]) -> list[str]:
    """What this engine says that it can't do."""
    wanted = {"MemoryLimit": "a limit on memory", "PidsLimit": "a limit on processes", "CpuCfsQuota": "a limit on CPU"}
    lacks = [
        f"{what} (this Docker engine can't: see `docker info`)"
        for key, what in wanted.items()
        if info.get(key) is False
    ]
    if not any("name=seccomp" in option for option in info.get("SecurityOptions") or []):
        lacks.append("a seccomp profile (this Docker engine has none: see `docker info`)")
    return lacks
