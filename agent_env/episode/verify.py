"""The steps that give a score: what they run, and the rows and scores that come of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_env.bundle.criteria import Judged
from agent_env.bundle.model import Artifact, Bundle
from agent_env.bundle.steps import (
    AgentPromptResponseVerifier,
    AggregateVerifiers,
    EnvOutcomeVerifier,
    Verifier,
    VerifySandbox,
)
from agent_env.episode import workspace
from agent_env.episode.live_env import LiveEnv
from agent_env.episode.replies import reply_rows
from agent_env.episode.scores import aggregate
from agent_env.sandbox.interface import Sandbox, Verification

__all__ = ["Reply", "Scorer", "Unscorable"]

GRACE_SECONDS = 10.0
"""Beyond what a verifier or a probe may take, for its end to be told."""


class Unscorable(Exception):
    """A verifier's step can't give a score; str() says why. Never a score of 0."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A turn that has ended."""

    prompt_id: str | None
    prompt: str
    text: str
    """What the model ended it with."""

    def as_run(self) -> dict[str, Any]:
        """What a verifier with a `run` parameter is given: the graded prompt's own turn."""
        turn = {"prompt_id": self.prompt_id, "message": {"text": self.prompt}, "reply": {"text": self.text}}
        return {"turns": [turn]}


@dataclass(slots=True)
class Scorer:
    """Runs verifier steps and keeps their scores, by step id, and their rows, by verifier id."""

    bundle: Bundle
    sandbox: Sandbox
    timeout: float
    """Seconds for each verifier."""
    scores: dict[str, float] = field(default_factory=dict)
    _rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    async def run(self, step: Verifier, env: LiveEnv | None, replies: Sequence[Reply]) -> None:
        """Run one step; env: what it looks at, if it looks at one.

        Raises Unscorable, and what the sandbox and the env's client raise.
        """
        try:
            async with asyncio.timeout(self._seconds(step) + GRACE_SECONDS):
                rows = await self._rows_of(step, env, replies)
            self.scores[step.id] = aggregate(rows, step.score_aggregator)
        except TimeoutError:
            raise Unscorable(f"step {step.id!r}: it took longer than {self._seconds(step):g} s") from None
        except (OSError, ValueError) as error:  # a file of the bundle that is gone; rows that make no number
            raise Unscorable(f"step {step.id!r}: {error}") from error
        # As in the public framework, an aggregate adds no rows of its own: one of aggregates would count them twice.
        self._rows[step.verifier_id or step.id] = [] if isinstance(step, AggregateVerifiers) else rows

    def _seconds(self, step: Verifier) -> float:
        return step.shell_timeout_seconds * len(step.criteria) if isinstance(step, VerifySandbox) else self.timeout

    async def _rows_of(self, step: Verifier, env: LiveEnv | None, replies: Sequence[Reply]) -> list[dict[str, Any]]:
        match step:
            case EnvOutcomeVerifier():
                return await self._verify_env(step, env, replies)
            case VerifySandbox():
                return await self._probe(step, env)
            case AgentPromptResponseVerifier():
                return await reply_rows(step.criteria, _reply_to(step.prompt_id, step.id, replies).text, self.timeout)
            case AggregateVerifiers():
                return self._union(step)

    async def _verify_env(
        self, step: EnvOutcomeVerifier, env: LiveEnv | None, replies: Sequence[Reply]
    ) -> list[dict[str, Any]]:
        assert env is not None  # `Stage.probed` has it, or has refused the step
        file = _verifier_file(self.bundle.artifacts[step.file_artifact_id], step.id)
        known = step.prompt_id is not None or replies
        run = _reply_to(step.prompt_id, step.id, replies).as_run() if known else {"turns": []}
        path = await env.client.mcp_path()
        env.client.close()  # a server that takes one connection at a time is the verifier's now
        rows: Any = await self.sandbox.verify(
            env.spec,
            Verification(
                code=file.read_text(encoding="utf-8"),
                filename=f"artifacts/{step.file_artifact_id}/{file.name}",
                run=run,
                mcp_path=path,
                timeout=self.timeout,
            ),
            env.instance.connect,
        )
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise Unscorable(f"step {step.id!r}: verify() must return a list of row dicts")
        return rows

    async def _probe(self, step: VerifySandbox, env: LiveEnv | None) -> list[dict[str, Any]]:
        assert env is not None  # as above
        rows = []
        for criterion in step.criteria:
            if isinstance(criterion, Judged):  # the bundle's reader leaves such a task out
                raise Unscorable(f"step {step.id!r}: a criterion of type {criterion.type!r} needs a judge")
            rows.append(await workspace.check(env.client, criterion, step.base_dir, step.shell_timeout_seconds))
        return rows

    def _union(self, step: AggregateVerifiers) -> list[dict[str, Any]]:
        missing = [name for name in step.verifier_ids if name not in self._rows]
        if missing:
            raise Unscorable(f"step {step.id!r}: no verifier has given rows as {', '.join(missing)}")
        rows = [row for name in step.verifier_ids for row in self._rows[name]]
        return [row for row in rows if not row.get("skipped")]


def _reply_to(prompt_id: str | None, step_id: str, replies: Sequence[Reply]) -> Reply:
    """The reply to a prompt, by its id; without one, the last."""
    if prompt_id is None:
        return replies[-1]
    for reply in replies:
        if reply.prompt_id == prompt_id:
            return reply
    raise Unscorable(f"step {step_id!r}: no turn with prompt_id {prompt_id!r} has ended")


def _verifier_file(artifact: Artifact, step_id: str) -> Path:
    """The artifact's single Python file."""
    files = [file for file in artifact.files if file.suffix == ".py"]
    if len(files) != 1:
        raise Unscorable(f"step {step_id!r}: artifact {artifact.name!r} must hold one .py file, not {len(files)}")
    return files[0]
