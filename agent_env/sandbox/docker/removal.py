"""Removing containers and networks, also those that may not exist yet, until they are gone."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from agent_env.sandbox.docker.engine import Engine
from agent_env.sandbox.docker.errors import EngineError, not_found

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Removals", "remove_container"]

log = logging.getLogger(__name__)

TRIES = 5
WINDOW = 120.0
"""Seconds that the daemon may take to make, after all, what it was asked for in a call that was cut off; or may be away
before a removal is given up."""


class Removals:
    """Every removal that is going on. Each is finished in the background, whatever becomes of who asked for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self.given_up = 0
        """Containers that could not be removed, or that may still come up: the janitor, or a later start, sees to
        them."""

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def begin(
        self, name: str, *, network: str | None = None, after: Future[Any] | None = None, hunt: bool = False
    ) -> asyncio.Task[None]:
        """Remove a container by name, with its anonymous volumes, and its network. The task never raises.

        after: a call that may still be making it. hunt: that call was cut off, so look for it for some time.
        """
        task = asyncio.create_task(self._remove(name, network, after, hunt), name=f"remove {name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self, timeout: float) -> None:
        """End the hunts, and wait for the removals that are going on, at most so many seconds."""
        self._closing.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        for task in list(self._tasks):
            task.cancel()

    async def _remove(self, name: str, network: str | None, after: Future[Any] | None, hunt: bool) -> None:
        if after is not None:
            if after.cancel():
                return  # it had not begun
            making = asyncio.wrap_future(after)
            await asyncio.wait([making])
            error = making.exception()
            hunt = isinstance(error, EngineError) and error.ambiguous
        give_up = time.monotonic() + WINDOW
        pause = 0.1
        closing = asyncio.create_task(self._closing.wait())
        try:
            while True:
                last = self._closing.is_set() or time.monotonic() > give_up
                try:
                    found = await self._engine.call(f"remove {name}", lambda api: remove_container(api, name))
                    if found or not hunt:
                        if network is not None:
                            await self._remove_network(network)
                        return
                    problem = "it may still come up"
                except EngineError as failed:
                    problem = str(failed)
                if last:
                    self.given_up += 1
                    log.error("container %s is left behind for now: %s", name, problem)
                    return
                await asyncio.wait([closing], timeout=pause)
                pause = min(2 * pause, 5.0)
        finally:
            closing.cancel()

    async def _remove_network(self, name: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                return await self._engine.call(f"remove network {name}", lambda api: api.remove_network(name))
            except EngineError as error:
                if not_found(error):
                    return None
                if not left:
                    raise
                await asyncio.sleep(0.1)
        return None


def remove_container(api: APIClient, name: str) -> bool:
    """SIGKILL and remove in one call, blocking. False if there is none. Raises the SDK's errors.

    A container that is just ending makes engines answer 409 (Docker: removal already in progress) or 500 (Podman:
    state improper): the next try settles it.
    """
    import docker.errors

    for left in reversed(range(TRIES)):
        try:
            api.remove_container(name, force=True, v=True)
            return True
        except docker.errors.NotFound:
            return left < TRIES - 1
        except docker.errors.APIError:
            if not left:
                raise
            time.sleep(0.1)
    return True
