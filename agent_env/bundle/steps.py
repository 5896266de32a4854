"""A task's steps as data: one frozen model per step type that an episode can play.

The field names are the public AgentEnv format's. Fields that only matter to a hosted run (`ttl_seconds`, `cpu`,
`model`, ...) are ignored, as are fields that nobody knows. A field that asks for something an episode can't do is kept
in the model, and `unplayable()` says why the task has to be left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AliasChoices, Field, field_validator, model_validator

from agent_env.bundle.criteria import (
    BashCmdSucceeds,
    ProbeDirExists,
    ProbeFileContains,
    ProbeFileExists,
    ResponseContains,
    ResponseCriterion,
    ResponseRegexPresent,
    SandboxCriterion,
)
from agent_env.bundle.fields import Data, Listed, Names, Seconds, Text
from agent_env.bundle.step_base import BaseStep
from agent_env.bundle.verifier_steps import (
    AgentPromptResponseVerifier,
    AggregateVerifiers,
    Aggregator,
    EnvOutcomeVerifier,
    Verifier,
    VerifySandbox,
)

__all__ = [
    "DEFAULT_AGENT",
    "STEP_TYPES",
    "AgentPromptResponseVerifier",
    "AggregateVerifiers",
    "Aggregator",
    "ApplyServerConfig",
    "ArtifactRef",
    "BaseStep",
    "BashCmdSucceeds",
    "DeployAgent",
    "DeployEnv",
    "DeploySandbox",
    "Directive",
    "EnvOutcomeVerifier",
    "LoadArtifact",
    "ModifyEnvToolAccess",
    "ProbeDirExists",
    "ProbeFileContains",
    "ProbeFileExists",
    "PromptAgent",
    "ResetEnv",
    "ResponseContains",
    "ResponseCriterion",
    "ResponseRegexPresent",
    "SandboxCriterion",
    "Step",
    "Verifier",
    "VerifySandbox",
]

DEFAULT_AGENT = "default-agent"
"""The agent that a step means when it names none."""


class DeployEnv(BaseStep):
    """Start a fresh env."""

    type: Literal["deploy_env"]
    env_id: Text
    artifact_id: str | None = None
    env_state_type: str | None = None
    env_state_instance_id: str | None = None

    def unplayable(self) -> str | None:
        for field in ("artifact_id", "env_state_type", "env_state_instance_id"):
            if getattr(self, field):
                return f"{field} needs a hosted env's stored state; seed the env with a load_artifact step"
        return super().unplayable()


class Directive(Data):
    """One configuration call: the extension `uri` of the server whose card is named `service`, with `args`."""

    service: Text = Field(validation_alias=AliasChoices("service", "environment"))
    """A card's name; `*`: every server of the env."""
    uri: Text
    args: dict[str, Any] = Field(default_factory=dict)


class ApplyServerConfig(BaseStep):
    """Call configuration extensions of an env, in order."""

    type: Literal["apply_server_config"]
    env_id: Text
    directives: Annotated[tuple[Directive, ...], Listed, Field(min_length=1)]
    timeout_seconds: Seconds = 30.0
    """For each directive."""
    tolerate_unadvertised: bool = False
    """A directive whose extension the card doesn't list is skipped instead of failing the step."""


class ArtifactRef(Data):
    id: Text


class LoadArtifact(BaseStep):
    """Seed an env's data plane with environment artifacts, or copy artifacts into a sandbox."""

    type: Literal["load_artifact"]
    env_id: Text | None = None
    artifacts: Annotated[tuple[ArtifactRef, ...], Listed] = ()
    sandbox_name: Text | None = None
    agent_name: Text | None = None
    """The agent whose own sandbox is meant, when `sandbox_name` isn't given."""
    destination_path: Text | None = None
    """Folder in the sandbox that gets the artifact's files; always set for a sandbox."""
    container_name: Any = None
    urls: Any = None
    collected_artifacts_step_id: Any = None
    artifact_from_step_id: Any = None

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: object) -> object:
        """`artifact_id` stands for a list of one, and a sandbox has a usual folder for what it loads."""
        if not isinstance(value, dict):
            return value
        if value.get("env_id") is None:
            usual = "/loaded" if value.get("sandbox_name") is not None else "/tmp/file_artifacts"
            value = {**value, "destination_path": value.get("destination_path") or usual}
        if value.get("artifact_id") is None:
            return value
        if value.get("artifacts") is not None:
            raise ValueError("has both artifact_id and artifacts; give one of them")
        return {**value, "artifacts": [{"id": value["artifact_id"]}]}

    @model_validator(mode="after")
    def _has_source_and_target(self) -> LoadArtifact:
        if self.unplayable() is not None:
            return self
        if not self.artifacts:
            raise ValueError("loads nothing; give artifact_id")
        if self.env_id is None and self.sandbox_name is None and self.agent_name is None:
            raise ValueError("loads nowhere; give env_id or sandbox_name")
        return self

    def unplayable(self) -> str | None:
        for field in ("container_name", "urls", "collected_artifacts_step_id", "artifact_from_step_id"):
            if getattr(self, field):
                return f"{field} is not supported: only artifacts of the bundle can be loaded"
        if self.env_id is not None and (self.sandbox_name is not None or self.agent_name is not None):
            return "loads an env's files into a sandbox, which only a hosted env has"
        return super().unplayable()


class ModifyEnvToolAccess(BaseStep):
    """Hide tools of an env from a role, or show them."""

    type: Literal["modify_env_tool_access"]
    env_id: Text
    action: Literal["disable", "enable"]
    role: Text
    tools: Names
    """Names; `*` means every tool that isn't hidden by default."""

    @field_validator("tools", mode="before")
    @classmethod
    def _wildcard(cls, value: object) -> object:
        return ("*",) if value == "*" else value


class ResetEnv(BaseStep):
    """Reset an env's data; best effort unless `fail_task_on_error` is set."""

    type: Literal["reset_env"]
    env_id: Text
    fail_task_on_error: bool = False


class DeployAgent(BaseStep):
    """Place the agent, with its envs. In an episode the trainer's model plays it, so image and skills don't matter."""

    type: Literal["deploy_agent"]
    env_ids: Annotated[tuple[Text, ...], Listed] = ()
    agent_name: Text = DEFAULT_AGENT
    role: str | None = None
    """The role that tool access rules see; None: `default`."""
    system_prompt: str | None = None
    sandbox_name: Text | None = None
    """The deployed sandbox that the agent works in."""
    skills: Any = None
    agent_snapshot_files_artifact_id: Any = None
    agent_changelog_object_url: Any = None
    enable_agent_changelog: Any = None

    @field_validator("agent_name", mode="before")
    @classmethod
    def _default_agent(cls, value: object) -> object:
        return value or DEFAULT_AGENT

    def unplayable(self) -> str | None:
        for field in ("agent_snapshot_files_artifact_id", "agent_changelog_object_url", "enable_agent_changelog"):
            if getattr(self, field):
                return f"{field} needs an agent that isn't the trainer's"
        return super().unplayable()


class PromptAgent(BaseStep):
    """One turn: the agent is given a prompt, and works until it ends the turn."""

    type: Literal["prompt_agent"]
    prompt: str | None = None
    parts: Annotated[tuple[Any, ...] | None, Listed] = None
    prompt_id: Text | None = None
    """By which verifiers name this turn."""
    system_prompt: str | None = None
    agent_name: Text = DEFAULT_AGENT
    output_format: Any = None
    agentenv_tools: Any = None
    snapshot_config: Any = None
    max_conversation_turns: Annotated[int, Field(ge=1)] = 1

    @field_validator("agent_name", mode="before")
    @classmethod
    def _default_agent(cls, value: object) -> object:
        return value or DEFAULT_AGENT

    @model_validator(mode="after")
    def _one_prompt(self) -> PromptAgent:
        if (self.prompt is None) == (self.parts is None):
            raise ValueError("needs either prompt or parts; give prompt, a text")
        return self

    def unplayable(self) -> str | None:
        if self.parts is not None:
            return "its prompt has parts; only a text prompt can be played"
        for field in ("output_format", "agentenv_tools", "snapshot_config"):
            if getattr(self, field):
                return f"its prompt has {field}, which needs an agent that isn't the trainer's"
        if self.max_conversation_turns > 1:
            return "it has a user simulator (max_conversation_turns > 1), which needs a model of its own"
        return super().unplayable()


class DeploySandbox(BaseStep):
    """Start an empty sandbox: a file system and commands, without an image."""

    type: Literal["deploy_sandbox"]
    sandbox_name: Text
    sandbox_mode: str = "vm"
    sandbox_type: str | None = None
    image: Any = None
    env_vars: dict[str, str] | None = None

    def unplayable(self) -> str | None:
        if self.image:
            return "its sandbox has an image; only a local sandbox without one can be played"
        if self.sandbox_type not in (None, "local"):
            return f"its sandbox is of type {self.sandbox_type!r}; only a local one can be played"
        return super().unplayable()


Step: TypeAlias = Annotated[
    DeployEnv
    | ApplyServerConfig
    | LoadArtifact
    | ModifyEnvToolAccess
    | ResetEnv
    | DeployAgent
    | PromptAgent
    | EnvOutcomeVerifier
    | AgentPromptResponseVerifier
    | AggregateVerifiers
    | DeploySandbox
    | VerifySandbox,
    Field(discriminator="type"),
]

STEP_TYPES: dict[str, type[BaseStep]] = {
    "deploy_env": DeployEnv,
    "apply_server_config": ApplyServerConfig,
    "load_artifact": LoadArtifact,
    "modify_env_tool_access": ModifyEnvToolAccess,
    "reset_env": ResetEnv,
    "deploy_agent": DeployAgent,
    "prompt_agent": PromptAgent,
    "env_outcome_verifier": EnvOutcomeVerifier,
    "agent_prompt_response_verifier": AgentPromptResponseVerifier,
    "aggregate_verifiers": AggregateVerifiers,
    "deploy_sandbox": DeploySandbox,
    "verify_sandbox": VerifySandbox,
}
"""Every step type that an episode can play. A task with a step of another type is left out."""
