"""One env in a container."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.docker.channel import Channel
from agent_env.sandbox.docker.container import Container
from agent_env.sandbox.interface import EnvInstance, EnvLost, SandboxError

__all__ = ["DockerEnv"]

GONE_WAIT = 1.0
"""Seconds that a container may go on after its server has closed its connection."""

END_WAIT = 3.0
"""Seconds after a refused connection for the reason to be known, if it is that the env has ended."""


class DockerEnv(EnvInstance):
    """Owns the container and the channel to it."""

    def __init__(
        self, env: EnvSpec, container: Container, channel: Channel, ended: Callable[[DockerEnv], None]
    ) -> None:
        """`ended` is called once nothing of it is left."""
        self.env = env
        self.id = container.options.name
        self._container = container
        self._channel = channel
        self._on_ended = ended
        self._end = asyncio.create_task(self._watch(), name=f"watch {self.id}")
        self._killing: asyncio.Task[None] | None = None

    async def connect(self) -> socket.socket:
        why = ""
        if not self._end.done():
            try:
                return await self._channel.connect()
            except (ConnectionError, SandboxError) as error:
                why = f"it accepts no connection: {error}"
                await asyncio.wait([self._end], timeout=END_WAIT)
        if self._end.done():
            why = await self.wait()
        raise EnvLost(f"env {self.env.name!r} has ended: {why}{self._printed()}")

    async def wait(self) -> str:
        return await asyncio.shield(self._end)

    @property
    def output(self) -> str:
        return self._container.output.text

    async def kill(self) -> None:
        if self._killing is None:
            self._killing = asyncio.create_task(self._kill(), name=f"kill {self.id}")
        await asyncio.shield(self._killing)

    async def _watch(self) -> str:
        exited = asyncio.create_task(self._container.exited())
        gone = asyncio.create_task(self._channel.gone())
        try:
            await asyncio.wait([exited, gone], return_when=asyncio.FIRST_COMPLETED)
            if not exited.done():
                await asyncio.wait([exited], timeout=GONE_WAIT)
            return exited.result() if exited.done() else "it closed its connection to the host"
        finally:
            exited.cancel()
            gone.cancel()

    async def _kill(self) -> None:
        try:
            # The container first: an env that sees its connection end would race its removal.
            await self._container.remove()
            await asyncio.wait([self._end], timeout=GONE_WAIT)
        finally:
            self._channel.close()
            self._end.cancel()
            self._on_ended(self)

    def _printed(self) -> str:
        text = self.output.strip()
        return f"; it printed:\n{text}" if text else ""
