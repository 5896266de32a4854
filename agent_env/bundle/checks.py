"""What must hold between a task's steps, in play order: nothing is used before it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agent_env.bundle.problems import closest
from agent_env.bundle.references import Report
from agent_env.bundle.steps import (
    AgentPromptResponseVerifier,
    AggregateVerifiers,
    DeployAgent,
    DeployEnv,
    DeploySandbox,
    EnvOutcomeVerifier,
    LoadArtifact,
    PromptAgent,
    Step,
    Verifier,
    VerifySandbox,
)

__all__ = ["check_deployed", "check_verifiers"]


def check_deployed(steps: Sequence[Step], agent: str, report: Report) -> None:
    """Every env, sandbox and agent is deployed once, before the first step that acts on it. agent: the trainer's."""
    there: set[tuple[str, str]] = set()
    for step in steps:
        for field, noun, name in _uses(step, agent):
            if (noun, name) not in there:
                fix = f"put the deploy_{noun} step for it before"
                report(step, field, f"the {noun} {name!r} is not deployed before this step", fix)
        for field, noun, name in _deploys(step):
            if (noun, name) in there:
                report(step, field, f"the {noun} {name!r} is deployed already", "deploy it once")
            there.add((noun, name))


def _deploys(step: Step) -> Iterator[tuple[str, str, str]]:
    """(field, noun, name) of what a step deploys."""
    if isinstance(step, DeployEnv):
        yield "env_id", "env", step.env_id
    elif isinstance(step, DeploySandbox):
        yield "sandbox_name", "sandbox", step.sandbox_name
    elif isinstance(step, DeployAgent):
        yield "agent_name", "agent", step.agent_name


def _uses(step: Step, agent: str) -> Iterator[tuple[str, str, str]]:
    """(field, noun, name) of all that must be there for a step."""
    if isinstance(step, DeployEnv | DeploySandbox):
        return
    if isinstance(step, DeployAgent):
        for index, env_id in enumerate(step.env_ids):
            yield f"env_ids.{index}", "env", env_id
        if step.sandbox_name is not None:
            yield "sandbox_name", "sandbox", step.sandbox_name
    elif isinstance(step, PromptAgent):
        yield "agent_name", "agent", step.agent_name
    elif step.named_env is not None:
        yield "env_id", "env", step.named_env
    elif isinstance(step, LoadArtifact | VerifySandbox):
        if step.sandbox_name is not None:
            yield "sandbox_name", "sandbox", step.sandbox_name
        else:
            yield "agent_name", "agent", step.agent_name or agent


def check_verifiers(steps: Sequence[Step], report: Report) -> None:
    """Prompts and verifiers have ids of their own, and what names one of them comes after it."""
    prompts: set[str] = set()
    verifiers: dict[str, Step] = {}
    for step in steps:
        if isinstance(step, PromptAgent) and step.prompt_id is not None:
            if step.prompt_id in prompts:
                what = f"the prompt_id {step.prompt_id!r} is taken by an earlier prompt"
                report(step, "prompt_id", what, "give each prompt its own")
            prompts.add(step.prompt_id)
        elif isinstance(step, AgentPromptResponseVerifier | EnvOutcomeVerifier):
            prompt_id = step.prompt_id
            if prompt_id is not None and prompt_id not in prompts:
                fix = closest(prompt_id, prompts, "prompt_ids before this step")
                report(step, "prompt_id", f"no prompt before this step has the prompt_id {prompt_id!r}", fix)
        elif isinstance(step, AggregateVerifiers):
            _check_aggregate(step, verifiers, report)
        if isinstance(step, Verifier) and step.verifier_id is not None:
            if step.verifier_id in verifiers:
                what = f"the verifier_id {step.verifier_id!r} is taken by an earlier step"
                report(step, "verifier_id", what, "give each verifier its own")
            verifiers[step.verifier_id] = step


def _check_aggregate(step: AggregateVerifiers, before: dict[str, Step], report: Report) -> None:
    for index, verifier_id in enumerate(step.verifier_ids):
        found = before.get(verifier_id)
        if found is None:
            what = f"no verifier before this step has the verifier_id {verifier_id!r}"
            report(step, f"verifier_ids.{index}", what, closest(verifier_id, before, "verifier_ids before this step"))
        elif isinstance(found, AggregateVerifiers):
            what = f"{verifier_id!r} is an aggregate, which has no rows of its own"
            report(step, f"verifier_ids.{index}", what, "name the verifiers that it takes in")
