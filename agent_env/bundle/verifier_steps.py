"""The steps that give a score."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from agent_env.bundle.criteria import Judged, ResponseCriterion, SandboxCriterion
from agent_env.bundle.fields import Listed, Names, Seconds, Text
from agent_env.bundle.step_base import BaseStep

__all__ = [
    "AgentPromptResponseVerifier",
    "AggregateVerifiers",
    "Aggregator",
    "EnvOutcomeVerifier",
    "Verifier",
    "VerifySandbox",
]

Aggregator = Literal["all_pass", "any_pass", "weighted_average"]
"""How a verifier's rows become its score."""


class _Verifier(BaseStep):
    verifier_id: Text | None = None
    """By which `aggregate_verifiers` names this step's rows."""
    score_aggregator: Aggregator = "all_pass"

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, value: object) -> object:
        """An empty name stands for an absent one."""
        if isinstance(value, dict):
            return {k: v for k, v in value.items() if k not in ("score_aggregator", "verifier_id") or v}
        return value


class EnvOutcomeVerifier(_Verifier):
    """Run the artifact's `verify(mcp_url)` against an env."""

    type: Literal["env_outcome_verifier"]
    env_id: Text
    file_artifact_id: Text
    prompt_id: Text | None = None


class AgentPromptResponseVerifier(_Verifier):
    """Check the agent's reply to one prompt."""

    type: Literal["agent_prompt_response_verifier"]
    prompt_id: Text
    criteria: Annotated[tuple[ResponseCriterion, ...], Listed, Field(min_length=1)]


class AggregateVerifiers(_Verifier):
    """One score from the rows of several verifiers."""

    type: Literal["aggregate_verifiers"]
    verifier_ids: Annotated[Names, Field(min_length=1)]
    score_aggregator: Aggregator = "weighted_average"


class VerifySandbox(_Verifier):
    """Probe files and run commands in a sandbox."""

    type: Literal["verify_sandbox"]
    criteria: Annotated[tuple[SandboxCriterion, ...], Listed, Field(min_length=1)]
    sandbox_name: str | None = None
    """None: the agent's sandbox."""
    agent_name: str | None = None
    base_dir: Text = "/app"
    shell_timeout_seconds: Seconds = 120.0
    """For each criterion."""

    @field_validator("sandbox_name", "agent_name")
    @classmethod
    def _blank(cls, value: str | None) -> str | None:
        """A blank name stands for none."""
        return value if value and value.strip() else None

    def unplayable(self) -> str | None:
        for criterion in self.criteria:
            if isinstance(criterion, Judged):
                return f"its criterion of type {criterion.type!r} needs a judge"
        return super().unplayable()


Verifier: TypeAlias = EnvOutcomeVerifier | AgentPromptResponseVerifier | VerifySandbox | AggregateVerifiers
"""The steps that give a score."""
