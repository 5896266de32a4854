"""One play of one task: its steps in order, its turns, the model's tool calls, its score, and the end of its envs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agent_env.bundle.model import Bundle, Task, Turn
from agent_env.bundle.steps import (
    BaseStep,
    DeployAgent,
    DeployEnv,
    DeploySandbox,
    PromptAgent,
    Step,
    Verifier,
)
from agent_env.episode.calls import call_tool
from agent_env.episode.env_client import EnvRefused
from agent_env.episode.http import PeerError
from agent_env.episode.live_env import LiveEnv
from agent_env.episode.scores import Reward, reward_of
from agent_env.episode.stage import Stage, StepFailed
from agent_env.episode.tool_access import DEFAULT_ROLE
from agent_env.episode.types import (
    END_TURN_TOOL,
    EpisodeFailed,
    ErrorKind,
    Event,
    Failure,
    Listener,
    Outcome,
    Prompt,
    Tool,
    ToolResult,
    no_listener,
)
from agent_env.episode.verify import Reply, Scorer, Unscorable
from agent_env.sandbox.interface import Sandbox, SandboxError, VerifierFailed

__all__ = ["Episode"]

logger = logging.getLogger(__name__)


class Episode:
    """One play of one task, in envs of its own. Its calls are made one at a time.

    `start`, then `call` and `end_turn` as the model says, then `close`, whatever happened before. Any of them may be
    cancelled; `close` then ends what was begun.
    """

    def __init__(
        self,
        task: Task,
        bundle: Bundle,
        sandbox: Sandbox,
        *,
        episode_id: str,
        listener: Listener = no_listener,
        verify_timeout: float = 60.0,
        reward: Reward = None,
    ) -> None:
        """verify_timeout: seconds for each verifier.
        reward: how scores make the reward; None: the task's `reward_step` is it.
        """
        self.id = episode_id
        self.task = task
        self.turn = 0
        """The open turn, from 0."""
        self.done = False
        """It has an outcome, or has failed: only `close` is left."""
        self.phase = "new"
        """What it is doing, for people: `deploying`, `idle`, `calling NAME`, `scoring`, `closing`, `closed`."""
        self.since = time.monotonic()
        """When `phase` began, by time.monotonic()."""
        self.lost = asyncio.Event()
        self._failure: EpisodeFailed | None = None
        """Set when an env has ended by itself; `lost_reason` says why."""
        self.lost_reason: str | None = None
        self._stage = Stage(task, bundle, sandbox, episode_id, _role(task), self._on_lost)
        self._scorer = Scorer(bundle, sandbox, verify_timeout)
        self._listener = listener
        self._reward = reward if reward is not None else task.reward_step
        self._next = 0
        """The step to play next."""
        self._replies: list[Reply] = []
        self._offered: dict[str, tuple[Tool, LiveEnv]] = {}
        self._closing: asyncio.Task[None] | None = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the open turn offers: its envs' tools, in the envs' order, and `end_turn`."""
        return (*(tool for tool, _ in self._offered.values()), END_TURN_TOOL)

    async def start(self) -> Prompt:
        """Deploy and set up all that comes before the first turn. Raises EpisodeFailed (DEPLOY_FAILED)."""
        began = time.monotonic()
        with self._doing("deploying"):
            try:
                await self._play_steps()
                prompt = await self._open_turn()
            except StepFailed as failed:
                raise self._failed(Failure.DEPLOY_FAILED, str(failed)) from failed
        envs = [env.spec.name for env in self._stage.envs]
        self._tell("deployed", seconds=time.monotonic() - began, envs=envs)
        self._tell_turn(prompt)
        return prompt

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Call a tool of the open turn, once. timeout: seconds; None: as long as it takes.

        What goes wrong is in the result: after a TIMEOUT the env is still there; after a TRANSPORT error it is gone, or
        not to be trusted any more, and the episode has failed: all else raises EpisodeFailed, but for close.
        """
        self._must_be_open()
        began = time.monotonic()
        with self._doing(f"calling {name}"):
            result = await self._call(name, arguments, timeout)
        self._tell(
            "call",
            tool=name,
            arguments=arguments,
            seconds=time.monotonic() - began,
            result=result.message or result.text,
            error=result.error,
        )
        if result.error is ErrorKind.TRANSPORT:
            self._failed(Failure.ENV_LOST, result.message)
        return result

    async def end_turn(self, response: str) -> Prompt | Outcome:
        """End the open turn with the model's answer: the next turn's prompt or, after the last one, the outcome.

        Raises EpisodeFailed: UNSCORED, ENV_LOST, or DEPLOY_FAILED for what a later turn needs.
        """
        self._must_be_open()
        turn = self.task.turns[self.turn]
        self._replies.append(Reply(turn.prompt_id, turn.prompt, response))
        self._offered = {}
        self._tell("turn_ended", turn=self.turn, response=response)
        began = time.monotonic()
        with self._doing("scoring"):
            try:
                self._next += 1
                await self._play_steps()
                if len(self._replies) < len(self.task.turns):
                    self.turn += 1
                    prompt = await self._open_turn()
                    self._tell_turn(prompt)
                    return prompt
            except StepFailed as failed:
                raise self._failed(failed.reason, str(failed)) from failed
            outcome = Outcome(self._make_reward(), dict(self._scorer.scores))
        self.done = True
        self._tell("scored", seconds=time.monotonic() - began, reward=outcome.reward, scores=outcome.scores)
        return outcome

    async def close(self) -> None:
        """End every env, in parallel and in bounded time. Idempotent; a cancelled caller stops only its own wait."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name=f"close episode {self.id}")
        await asyncio.shield(self._closing)

    # ---- steps ---------------------------------------------------------------------------------------------------

    async def _play_steps(self) -> None:
        """Play the steps up to the next prompt, or to the end. Raises StepFailed."""
        steps = self.task.steps
        while self._next < len(steps) and not isinstance(steps[self._next], PromptAgent):
            step = steps[self._next]
            deploys = _deploys(steps[self._next :])
            try:
                if deploys:
                    await self._stage.deploy(deploys)
                elif isinstance(step, Verifier):
                    await self._score(step)
                else:
                    await self._stage.play(step)
            except StepFailed as failed:
                if step.fail_task_on_error:
                    raise
                logger.warning("episode %s (%s): %s; the task goes on without it", self.id, self.task.id, failed)
            self._next += len(deploys) or 1

    async def _score(self, step: Verifier) -> None:
        live = self._stage.probed(step)
        try:
            work = self._scorer.run(step, live, self._replies)
            await (work if live is None else live.while_alive(work))
        except (Unscorable, VerifierFailed, PeerError, SandboxError, EnvRefused) as error:
            # A verifier fails when its env is gone; only the env's end says which of the two went wrong.
            lost = await live.why_lost(0.05) if live is not None else None
            if lost is not None:
                raise StepFailed(f"step {step.id!r}: {lost}", Failure.ENV_LOST) from error
            text = str(error) if isinstance(error, Unscorable) else f"step {step.id!r}: {error}"
            raise StepFailed(text, Failure.UNSCORED) from error

    def _make_reward(self) -> float:
        scores = self._scorer.scores
        try:
            return reward_of(scores, self._reward)
        except Exception as error:  # the user's function may raise anything
            if callable(self._reward):
                logger.exception("episode %s (%s): reward= failed on %s", self.id, self.task.id, scores)
            raise self._failed(Failure.UNSCORED, f"no reward: {type(error).__name__}: {error}") from error

    # ---- turns and calls -----------------------------------------------------------------------------------------

    async def _open_turn(self) -> Prompt:
        """List what the turn offers. Raises StepFailed."""
        turn = self.task.turns[self.turn]
        step = self.task.steps[self._next]
        offered: dict[str, tuple[Tool, LiveEnv]] = {}
        for live, tools in await self._listed(turn, step):
            for tool in tools:
                if tool.name == END_TURN_TOOL.name:
                    why = f"offers a tool named {tool.name!r}, which every episode has; name it otherwise"
                    raise StepFailed(live.described(why), Failure.DEPLOY_FAILED)
                if tool.name in offered:
                    other = offered[tool.name][1].spec.name
                    why = f"offers a tool {tool.name!r}, as env {other!r} does; hide one with modify_env_tool_access"
                    raise StepFailed(live.described(why), Failure.DEPLOY_FAILED)
                offered[tool.name] = (tool, live)
        self._offered = offered
        return Prompt(self.turn, turn.prompt, turn.system_prompt)

    async def _listed(self, turn: Turn, step: BaseStep) -> list[tuple[LiveEnv, tuple[Tool, ...]]]:
        async def listed(live: LiveEnv) -> tuple[LiveEnv, tuple[Tool, ...]]:
            async with self._stage.asking(live, step):
                return live, await live.tools()

        envs = self._stage.offered(turn, step)
        if len(envs) == 1:
            return [await listed(envs[0])]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(listed(live)) for live in envs]
        except* StepFailed as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _call(self, name: str, arguments: Mapping[str, Any], timeout: float | None) -> ToolResult:
        found = self._offered.get(name)
        if found is None:
            names = ", ".join(tool.name for tool in self.tools)
            return ToolResult(
                error=ErrorKind.UNKNOWN_TOOL, message=f"there is no tool {name!r}; the tools are: {names}"
            )
        return await call_tool(found[1], name, arguments, timeout)

    # ---- the episode's life --------------------------------------------------------------------------------------

    async def _close(self) -> None:
        self.done = True
        began, leaked = time.monotonic(), 0
        with self._doing("closing"):
            try:
                leaked = await self._stage.close()
            finally:
                self._tell("closed", seconds=time.monotonic() - began, leaked=leaked)
        self.phase = "closed"

    def _must_be_open(self) -> None:
        if self._failure is not None:
            raise EpisodeFailed(self._failure.reason, str(self._failure))
        if self.done or self.phase == "new":
            raise RuntimeError(f"episode {self.id} {'has ended' if self.done else 'has not been started'}")

    @contextmanager
    def _doing(self, phase: str) -> Iterator[None]:
        self.phase, self.since = phase, time.monotonic()
        try:
            yield
        finally:
            self.phase, self.since = "idle", time.monotonic()

    def _failed(self, reason: Failure, message: str) -> EpisodeFailed:
        self.done = True
        self._failure = EpisodeFailed(reason, message)
        self._tell("failed", reason=reason, message=message)
        return self._failure

    def _on_lost(self, reason: str) -> None:
        if self.lost_reason is None:
            self.lost_reason = reason
        self.lost.set()

    def _tell_turn(self, prompt: Prompt) -> None:
        self._tell("turn_opened", turn=prompt.turn, prompt=prompt.prompt, system_prompt=prompt.system_prompt)

    def _tell(self, kind: str, **data: Any) -> None:
        self._listener(Event(kind, self.id, self.task.id, time.time(), data))


def _role(task: Task) -> str:
    """What tool access rules call the agent."""
    for step in task.steps:
        if isinstance(step, DeployAgent) and step.agent_name == task.agent_name and step.role:
            return step.role
    return DEFAULT_ROLE


def _deploys(steps: Sequence[Step]) -> list[DeployEnv | DeploySandbox]:
    """The deploys that stand at the beginning, one after the other: nothing can lie between them. One that may fail
    stands alone, since the others of a group go down with one that fails."""
    deploys: list[DeployEnv | DeploySandbox] = []
    for step in steps:
        if not isinstance(step, DeployEnv | DeploySandbox) or (deploys and not step.fail_task_on_error):
            break
        deploys.append(step)
        if not step.fail_task_on_error:
            break
    return deploys
