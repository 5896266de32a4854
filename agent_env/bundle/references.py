"""The envs and artifacts that steps name, found in the bundle."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_env.bundle.files import Unreadable, read_small
from agent_env.bundle.model import Artifact, EnvSpec
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.steps import ArtifactRef, DeployAgent, EnvOutcomeVerifier, LoadArtifact, Step

__all__ = ["NotPlayable", "Report", "Scope", "resolve"]


@dataclass(slots=True)
class Scope:
    """What the steps of a bundle's tasks may name."""

    bundle: str
    envs: Mapping[str, EnvSpec]
    """By folder name, alias and declared id."""
    unplayable_envs: Mapping[str, str]
    """By the same names: why each can't be deployed."""
    artifacts: Mapping[str, Artifact | None]
    """By folder name and declared id; None: it has problems of its own."""
    checked_verifiers: dict[str, tuple[str, str, str, str] | None] = field(default_factory=dict)
    """What is wrong with each verifier's file, by artifact: many tasks share one, and it is read once."""


class NotPlayable(Exception):
    """The task is well formed and an episode can't play it: because of `step`, or of the whole of it (None)."""

    def __init__(self, step: Step | None, why: str) -> None:
        self.step = step
        super().__init__(why)


class Report(Protocol):
    """Notes a problem of a step's field; a field may be a path such as `env_ids.0`."""

    def __call__(self, step: Step, field: str, what: str, fix: str) -> None: ...


def resolve(step: Step, scope: Scope, report: Report, problems: Problems) -> Step:
    """The step with every env and artifact named by its folder. What isn't in the bundle is reported. Raises
    NotPlayable for what lies in a hosted store, or is of a kind that can't be played."""
    changes: dict[str, Any] = {}
    if isinstance(step, DeployAgent):
        changes["env_ids"] = tuple(
            _env(step, f"env_ids.{index}", name, scope, report) for index, name in enumerate(step.env_ids)
        )
    elif (name := step.named_env) is not None:
        changes["env_id"] = _env(step, "env_id", name, scope, report)
    if isinstance(step, EnvOutcomeVerifier):
        artifact = _artifact(step, "file_artifact_id", step.file_artifact_id, scope, report)
        if artifact is not None:
            changes["file_artifact_id"] = artifact.name
            _check_verifier(step, artifact, scope, report, problems)
    if isinstance(step, LoadArtifact):
        changes["artifacts"] = tuple(
            _loaded(step, index, reference, scope, report) for index, reference in enumerate(step.artifacts)
        )
    if all(getattr(step, name) == value for name, value in changes.items()):
        return step
    return step.model_copy(update=changes)


def _env(step: Step, field: str, name: str, scope: Scope, report: Report) -> str:
    if spec := scope.envs.get(name):
        return spec.name
    if why := scope.unplayable_envs.get(name):
        raise NotPlayable(step, why)
    if name.startswith("@"):
        raise NotPlayable(step, f"{field} names {name}, which is not in the bundle")
    fix = closest(name, {*scope.envs, *scope.unplayable_envs}, "envs")
    report(step, field, f"the bundle has no env {name!r}", fix)
    return name


def _artifact(step: Step, field: str, name: str, scope: Scope, report: Report) -> Artifact | None:
    if name in scope.artifacts:
        return scope.artifacts[name]
    if name.startswith("@"):
        raise NotPlayable(step, f"{field} names {name}, which is not in the bundle")
    report(step, field, f"the bundle has no artifact {name!r}", closest(name, scope.artifacts, "artifacts"))
    return None


def _loaded(step: LoadArtifact, index: int, reference: ArtifactRef, scope: Scope, report: Report) -> ArtifactRef:
    artifact = _artifact(step, f"artifacts.{index}.id", reference.id, scope, report)
    if artifact is None:
        return reference
    wanted = ("environment",) if step.env_id is not None else ("file", "file_artifact_universe")
    if artifact.type not in wanted:
        where = "an env loads" if step.env_id is not None else "a sandbox loads"
        what = f"{artifact.name!r} is of type {artifact.type}, and {where} type {' or '.join(wanted)}"
        report(step, f"artifacts.{index}.id", what, f"write type = {wanted[0]!r} into its artifact.toml")
    return reference if artifact.name == reference.id else ArtifactRef(id=artifact.name)


def _check_verifier(
    step: EnvOutcomeVerifier, artifact: Artifact, scope: Scope, report: Report, problems: Problems
) -> None:
    if artifact.type != "file" or artifact.files[0].suffix != ".py":
        what = f"{artifact.name!r} is no verifier"
        report(step, "file_artifact_id", what, "an artifact of one Python file, as verify.py, must be named")
        return
    if artifact.name not in scope.checked_verifiers:
        scope.checked_verifiers[artifact.name] = _verifier_problem(artifact)
    if (found := scope.checked_verifiers[artifact.name]) is not None:
        problems.add(*found)


def _verifier_problem(artifact: Artifact) -> tuple[str, str, str, str] | None:
    path = artifact.files[0]
    file = f"artifacts/{artifact.name}/{path.name}"
    try:
        tree = ast.parse(read_small(path))
    except Unreadable as error:
        return file, "", str(error), error.fix
    except SyntaxError as error:
        return file, f"line {error.lineno}", f"not valid Python: {error.msg}", "mend the line"
    except (ValueError, RecursionError, MemoryError) as error:
        return file, "", f"not valid Python: {error}", "write a Python file"
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            return None  # it may be defined in there
    if names & {"verify", "*"}:
        return None
    return file, "", "it defines no verify", "define async def verify(mcp_url), which returns a list of rows"
