"""The Docker daemon, through the `docker` SDK, which blocks: each call runs in one of a few threads kept for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from agent_env.sandbox.docker.errors import EngineError, engine_error
from agent_env.sandbox.docker.threads import Threads
from agent_env.sandbox.interface import SandboxError, SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["API_VERSION", "Engine"]

T = TypeVar("T")

API_VERSION = (1, 41)
"""The oldest engine API that will do: Docker 20.10, Podman 4."""

PING_TIMEOUT = 10.0


class Engine:
    """One daemon: the one that DOCKER_HOST names (with DOCKER_TLS_VERIFY and DOCKER_CERT_PATH), or the local one.

    Starts and everything else have threads of their own: an end never queues behind a hundred starts.
    """

    def __init__(self, *, timeout: float = 60.0, start_threads: int = 8, other_threads: int = 8) -> None:
        """timeout: seconds that the daemon may take for one answer."""
        self.timeout = timeout
        self.address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self.info: dict[str, Any] = {}
        """What `docker info` says; filled by `connect`."""
        self._sizes = (start_threads, other_threads)
        self._starts = Threads("docker-start", start_threads)
        self._others = Threads("docker", other_threads)
        self._api: APIClient | None = None

    async def connect(self) -> None:
        """Raises SandboxUnavailable: no daemon, none that answers, too old, or one on another machine."""
        if not self.address.startswith(("unix://", "http+unix://", "tcp://127.", "tcp://localhost")):
            raise SandboxUnavailable(
                f"DOCKER_HOST={self.address}: the daemon must run on this machine, since envs are reached through"
                " folders of this machine that are mounted into their containers"
            )
        try:
            async with asyncio.timeout(PING_TIMEOUT):
                await self.call("say its version", self._open)
        except TimeoutError:
            raise SandboxUnavailable(
                f"the Docker daemon at {self.address} did not answer within {PING_TIMEOUT:g} s"
            ) from None
        except EngineError as error:
            raise SandboxUnavailable(str(error)) from error

    async def call(self, doing: str, function: Callable[[APIClient], T]) -> T:
        """Run it in a thread. Raises EngineError, and the SandboxErrors that the function raises itself. A call that is
        cancelled is left to end by itself."""
        return await asyncio.shield(_observed(asyncio.wrap_future(self.submit(doing, function))))

    def submit(self, doing: str, function: Callable[[APIClient], T], *, start: bool = False) -> Future[T]:
        """The same for a caller that must know what became of it after a cancellation. `start`: use the threads kept
        for starting containers."""

        def run() -> T:
            try:
                return function(self._client())
            except SandboxError:
                raise
            except Exception as error:
                raise engine_error(error, doing, self.address, self.timeout) from error

        return (self._starts if start else self._others).submit(run)

    def close(self) -> None:
        self._starts.close()
        self._others.close()

    def _client(self) -> APIClient:
        if self._api is None:
            import docker

            pool = sum(self._sizes)
            self._api = docker.from_env(timeout=self.timeout, max_pool_size=pool).api  # type: ignore[arg-type]
        return self._api

    def _open(self, api: APIClient) -> None:
        version = str(api.version()["ApiVersion"])
        if tuple(int(part) for part in version.split(".")) < API_VERSION:
            needed = ".".join(map(str, API_VERSION))
            raise EngineError(
                f"the Docker daemon at {self.address} speaks API {version}; {needed} (Docker 20.10) is needed", "daemon"
            )
        self.info = dict(api.info())


def _observed(future: asyncio.Future[T]) -> asyncio.Future[T]:
    """An abandoned call's error is nobody's: don't let asyncio report it."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future
