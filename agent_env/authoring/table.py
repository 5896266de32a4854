"""One episode for somebody who takes their time: its event loop runs only while something is asked of the episode."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from agent_env.bundle import Bundle, Task
from agent_env.bundle.problems import closest
from agent_env.episode import Episode, Outcome, Prompt, Tool, ToolResult
from agent_env.episode.scores import reward_named
from agent_env.sandbox.choose import make_sandbox

__all__ = ["CannotPlay", "Table", "find_task"]

CALL_SECONDS = 600.0


class CannotPlay(Exception):
    """There is no such task, or it can't be played so; str() is one line."""


def find_task(bundle: Bundle, name: str | None) -> Task:
    """The task of that name; None: the first. Raises CannotPlay."""
    tasks = bundle.splits["all"].tasks
    for task in tasks:
        if name in (None, task.name, task.id):
            return task
    for left_out in bundle.left_out:
        if name in (None, left_out.name):
            raise CannotPlay(f"{left_out.name} can't be played: {left_out.why}")
    if name is None:
        raise CannotPlay(f"{bundle.name} has no task")
    raise CannotPlay(f"{bundle.name} has no task {name!r}; {closest(name, [task.name for task in tasks], 'tasks')}")


class Table:
    """A started sandbox and a task's episode in it. Use as a context manager, which deploys and tears down.

    The methods are Episode's, but they block; they raise what it raises. Ctrl-C cancels the one that runs and is raised
    as KeyboardInterrupt.
    """

    def __init__(self, task: Task, bundle: Bundle, sandbox: str, reward: str | None) -> None:
        """reward: a step id, or `mean`; None: the task's own, or the mean. Raises SandboxError, CannotPlay."""
        if reward is not None and reward != "mean" and reward not in task.scores:
            raise CannotPlay(f"{task.name} gives no score {reward!r}; it gives {', '.join(task.scores)}")
        how = reward_named(reward or task.reward_step or "mean")
        try:
            self._sandbox = make_sandbox(sandbox, envs=[bundle.envs[name] for name in task.env_ids])
        except ValueError as error:
            raise CannotPlay(str(error)) from error
        self._episode = Episode(task, bundle, self._sandbox, episode_id=f"play-{uuid.uuid4().hex[:8]}", reward=how)
        self._runner = asyncio.Runner()
        self.task = task

    def __enter__(self) -> Self:
        self._runner.__enter__()
        try:
            self._runner.run(self._sandbox.start())
            self.prompt = self._runner.run(self._episode.start())
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the open turn offers."""
        return self._episode.tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        return self._runner.run(self._episode.call(name, arguments, CALL_SECONDS))

    def end_turn(self, response: str) -> Prompt | Outcome:
        return self._runner.run(self._episode.end_turn(response))

    def _close(self) -> None:
        try:
            self._runner.run(self._episode.close())
            self._runner.run(self._sandbox.close())
        finally:
            self._runner.close()
