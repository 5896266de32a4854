"""The envs of an episode, and the steps that set them up: deploys, data, configuration, tool access."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from agent_env.bundle.model import Bundle, EnvSpec, Task, Turn
from agent_env.bundle.steps import (
    ApplyServerConfig,
    BaseStep,
    DeployAgent,
    DeployEnv,
    DeploySandbox,
    Directive,
    EnvOutcomeVerifier,
    LoadArtifact,
    ModifyEnvToolAccess,
    ResetEnv,
    Verifier,
    VerifySandbox,
)
from agent_env.episode import workspace
from agent_env.episode.env_client import EnvRefused
from agent_env.episode.http import PeerError
from agent_env.episode.jsontext import JsonValueError
from agent_env.episode.live_env import LiveEnv
from agent_env.episode.mcp import RpcError
from agent_env.episode.types import Failure
from agent_env.sandbox.interface import EnvLost, Sandbox, SandboxError

__all__ = ["Stage", "StepFailed"]

logger = logging.getLogger(__name__)

STEP_SECONDS = 60.0
"""For one step's requests to an env, where the step says no time of its own."""


class StepFailed(Exception):
    """A step could not be played. `reason`: how that fails an episode that was under way; str(): why."""

    def __init__(self, message: str, reason: Failure = Failure.ENV_LOST) -> None:
        self.reason = reason
        super().__init__(message)


class Stage:
    """Owns what it deploys, until `close()`."""

    def __init__(
        self,
        task: Task,
        bundle: Bundle,
        sandbox: Sandbox,
        episode_id: str,
        role: str,
        on_lost: Callable[[str], None],
    ) -> None:
        """role: the agent's; on_lost: told why when an env ends by itself."""
        self._task = task
        self._bundle = bundle
        self._sandbox = sandbox
        self._episode_id = episode_id
        self._role = role
        self._on_lost = on_lost
        self._envs: dict[str, LiveEnv] = {}
        self._workspaces: dict[str, LiveEnv] = {}
        """The sandboxes that the task deploys, by name."""
        self._closed = False

    @property
    def envs(self) -> tuple[LiveEnv, ...]:
        """All that is deployed, in no order that matters."""
        return (*self._envs.values(), *self._workspaces.values())

    def offered(self, turn: Turn, step: BaseStep) -> list[LiveEnv]:
        """What the agent has its tools of in a turn: its envs, and the sandbox that it works in."""
        envs = [self._env(env_id, step) for env_id in turn.env_ids]
        return envs if self._task.agent_sandbox is None else [*envs, self._workspace(None, step)]

    def probed(self, step: Verifier) -> LiveEnv | None:
        """What a verifier looks at; None: at nothing that is deployed."""
        if isinstance(step, EnvOutcomeVerifier):
            return self._env(step.env_id, step)
        return self._workspace(step.sandbox_name, step) if isinstance(step, VerifySandbox) else None

    async def deploy(self, steps: Iterable[DeployEnv | DeploySandbox]) -> None:
        """Deploy several at once. Raises StepFailed, for the first that fails."""
        first, *others = steps
        if not others:
            await self._deploy(first)
            return
        try:
            async with asyncio.TaskGroup() as group:
                for step in (first, *others):
                    group.create_task(self._deploy(step))
        except* StepFailed as failures:
            raise failures.exceptions[0] from None

    async def play(self, step: BaseStep) -> None:
        """Play one step that sets an env up; others (agents, prompts) need nothing. Raises StepFailed."""
        match step:
            case ApplyServerConfig():
                await self._configure(step)
            case LoadArtifact():
                await self._load(step)
            case ModifyEnvToolAccess():
                async with self.asking(self._env(step.env_id, step), step) as live:
                    await live.change_access(step.action, step.role, step.tools)
            case ResetEnv():
                async with self.asking(self._env(step.env_id, step), step) as live:
                    await live.client.reset_data()
            case DeployAgent():
                own = self._task.agent_sandbox
                if own is not None and own not in self._task.sandboxes:
                    await self._start_workspace(own, step, {})

    async def close(self) -> int:
        """End every env, in parallel and in bounded time. A deploy that comes through later ends at once.

        Returns how many could not be ended.
        """
        self._closed = True
        return (await asyncio.gather(*(live.close() for live in self.envs))).count(False)

    @asynccontextmanager
    async def asking(self, live: LiveEnv, step: BaseStep, timeout: float = STEP_SECONDS) -> AsyncIterator[LiveEnv]:
        """Around requests to an env for a step: whatever goes wrong with them is a StepFailed that says what."""
        try:
            async with asyncio.timeout(timeout) as deadline:
                yield live
        except (EnvRefused, RpcError, JsonValueError) as error:
            raise StepFailed(f"step {step.id!r}: {live.described(str(error))}", Failure.UNSCORED) from error
        except TimeoutError as error:
            if not deadline.expired():
                raise
            why = f"no answer within {timeout:g} s"
            raise StepFailed(f"step {step.id!r}: {live.described(why)}") from error
        except (PeerError, EnvLost, OSError) as error:  # OSError: a file of the bundle, or the connection
            why = await live.why_lost() or live.described(str(error))
            raise StepFailed(f"step {step.id!r}: {why}") from error

    def _env(self, env_id: str, step: BaseStep) -> LiveEnv:
        """The env that a step calls `env_id`: its folder's name, or an alias."""
        live = self._envs.get(self._bundle.envs[env_id].name)
        if live is None:
            raise StepFailed(f"step {step.id!r}: env {env_id!r} isn't deployed", Failure.DEPLOY_FAILED)
        return live

    def _workspace(self, name: str | None, step: BaseStep) -> LiveEnv:
        """The sandbox of that name; None: the agent's."""
        live = self._workspaces.get(name or self._task.agent_sandbox or "")
        if live is None:
            raise StepFailed(f"step {step.id!r}: sandbox {name!r} isn't deployed", Failure.DEPLOY_FAILED)
        return live

    async def _deploy(self, step: DeployEnv | DeploySandbox) -> None:
        if isinstance(step, DeploySandbox):
            await self._start_workspace(step.sandbox_name, step, step.env_vars or {})
        else:
            spec = self._bundle.envs[step.env_id]
            await self._start(spec, step, self._envs)

    async def _start(self, spec: EnvSpec, step: BaseStep, live: dict[str, LiveEnv]) -> None:
        try:
            instance = await self._sandbox.deploy(spec, episode_id=self._episode_id)
        except SandboxError as error:
            raise StepFailed(f"step {step.id!r}: {error}", Failure.DEPLOY_FAILED) from error
        if self._closed:
            await instance.kill()
            raise StepFailed(f"step {step.id!r}: the episode was closed meanwhile", Failure.DEPLOY_FAILED)
        live[spec.name] = LiveEnv(instance, self._role, self._on_lost)

    async def _start_workspace(self, name: str, step: BaseStep, environ: Mapping[str, str]) -> None:
        folders = workspace.writable_folders(self._task)
        await self._start(workspace.workspace_spec(name, folders), step, self._workspaces)
        async with self.asking(self._workspace(name, step), step) as live:
            await workspace.set_up(live.client, folders, environ)

    async def _configure(self, step: ApplyServerConfig) -> None:
        for directive in step.directives:
            async with self.asking(self._env(step.env_id, step), step, step.timeout_seconds) as live:
                await self._apply(directive, live, tolerate=step.tolerate_unadvertised)

    async def _apply(self, directive: Directive, live: LiveEnv, *, tolerate: bool) -> None:
        card = await live.client.card()
        name = (card or {}).get("name")
        names = {name, live.spec.name, live.spec.environment_name} - {None}
        extension = None
        if card is None:
            problem = "it has no card"
        elif directive.service != "*" and directive.service not in names:
            problem = f"its card is named {name!r}, not {directive.service!r}"
        else:
            extension = await live.client.extension(directive.uri)
            problem = "its card doesn't list the extension"
        if extension is not None:
            await live.client.invoke(extension, directive.args)
        elif tolerate:
            logger.info("env %s: %s is skipped: %s", live.spec.name, directive.uri, problem)
        else:
            raise EnvRefused(f"{directive.uri} can't be applied: {problem}")

    async def _load(self, step: LoadArtifact) -> None:
        for reference in step.artifacts:
            artifact = self._bundle.artifacts[reference.id]
            if step.env_id is not None:
                async with self.asking(self._env(step.env_id, step), step) as live:
                    await live.client.reset_data()
                    await live.client.add_files(artifact.files)
            else:
                async with self.asking(self._workspace(step.sandbox_name, step), step) as live:
                    await workspace.put_files(live.client, artifact, step.destination_path or workspace.HOME)
