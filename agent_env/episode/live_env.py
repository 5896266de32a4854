"""One env of an episode while it lives: what reaches it, who sees which of its tools, and how it was lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.episode.env_client import EnvClient
from agent_env.episode.tool_access import DEFAULT_ROLE, EXTENSIONS, ToolAccess, hidden_by_default
from agent_env.episode.types import Tool
from agent_env.sandbox.interface import EnvInstance, EnvLost

__all__ = ["LiveEnv"]

logger = logging.getLogger(__name__)

TAIL_CHARACTERS = 2_000
"""Of what the env printed, in an error."""
LAST_WORDS_SECONDS = 0.1
"""For what the env had sent before it ended to be read; then its connections are dropped."""
NEWS_SECONDS = 0.5
"""For the news of an env's end, when a connection to it has failed."""
KILL_SECONDS = 30.0


class LiveEnv:
    """Owns an instance from its deploy on. `close()` ends it."""

    def __init__(self, instance: EnvInstance, role: str, on_lost: Callable[[str], None]) -> None:
        """role: the agent's, for tool access; on_lost: told why, once, when the env ends by itself."""
        self.instance = instance
        self.client = EnvClient(instance, role if role != DEFAULT_ROLE else None)
        self.lost: str | None = None
        """Why the env is gone, with the end of its output; None while it lives."""
        self._role = role
        self._access = ToolAccess()
        self._on_lost = on_lost
        self._ended = asyncio.Event()
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {instance.id}")

    @property
    def spec(self) -> EnvSpec:
        return self.instance.env

    async def tools(self) -> tuple[Tool, ...]:
        """The tools that the agent's role is shown now."""
        return tuple(
            Tool(tool.name, tool.description, tool.input_schema)
            for tool in await self.client.list_tools()
            if self._access.shows(self._role, tool.name, hidden=hidden_by_default(tool.meta))
        )

    async def change_access(self, action: str, role: str, tools: tuple[str, ...]) -> None:
        """Show tools to a role, or hide them; a server that keeps such rules of its own is told too."""
        self._access.change(action, role, tools)
        extension = await self.client.extension(EXTENSIONS[action])
        if extension is not None:
            await self.client.invoke(
                extension, {"role": role, "tools": "*" if tools == ("*",) else list(tools)}, action
            )

    async def why_lost(self, timeout: float = NEWS_SECONDS) -> str | None:
        """Why the env is gone, once something with it has failed: the news of its end may be a moment behind.

        timeout: seconds to wait for the news; None is the answer then: it lives.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            pass
        return self.lost

    async def while_alive(self, work: Coroutine[Any, Any, None]) -> None:
        """Await work that needs the env, but not for long once the env has ended: then raises EnvLost."""
        task, ended = asyncio.create_task(work), asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait((task,), timeout=NEWS_SECONDS)
            if not task.done():
                raise EnvLost(self.lost or "the env ended")
            await task
        finally:
            task.cancel()
            ended.cancel()
            await asyncio.gather(task, ended, return_exceptions=True)

    def described(self, problem: str) -> str:
        """A problem with this env, with its name and the end of what it printed."""
        tail = self.instance.output.strip()[-TAIL_CHARACTERS:]
        return f"env {self.spec.name!r}: {problem}" + (f"; the end of its output:\n{tail}" if tail else "")

    async def close(self) -> bool:
        """End the env and everything of it. Bounded; never raises for the env's doings.

        Returns whether all of it is gone; False: something may be left, which is logged.
        """
        self._watcher.cancel()
        self.client.close()
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await self.instance.kill()
            return True
        except TimeoutError:
            logger.error("env %s (%s) did not end within %g s", self.spec.name, self.instance.id, KILL_SECONDS)
        except Exception:
            logger.exception("ending env %s (%s) failed", self.spec.name, self.instance.id)
        return False

    async def _watch(self) -> None:
        try:
            reason = await self.instance.wait()
        except Exception as error:
            logger.exception("watching env %s (%s) failed", self.spec.name, self.instance.id)
            reason = f"it can't be watched any more: {error}"
        self.lost = self.described(f"it ended: {reason}")
        self._ended.set()
        self._on_lost(self.lost)
        await asyncio.sleep(LAST_WORDS_SECONDS)
        self.client.close()
