"""A bundle's tasks played by scripted policies, on a server of its own, through the rollout that training uses."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_env.authoring.chance import random_policy
from agent_env.bundle import Bundle
from agent_env.episode.scores import reward_named
from agent_env.evaluate.models import SessionServer
from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.training.miles.rows import write_rows
from agent_env.training.policies import Policy, end_turn
from agent_env.training.rehearsal import read_rows
from agent_env.training.rollout import Rollout
from agent_env.training.row import read_row
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine
from agent_env.training.types import RolloutResult, ServerSettings, Status

__all__ = ["NO_OP", "RANDOM", "UNTRAINED", "Play", "play_all"]

NO_OP, RANDOM = "no-op", "random"
UNTRAINED: Mapping[str, Policy] = {NO_OP: end_turn, RANDOM: random_policy}
"""What every bundle is played with: the policies that a task must not reward as it does its author's."""


@dataclass(frozen=True, slots=True)
class Play:
    """One task played once by one policy."""

    policy: str
    index: int
    """The task's place in its split."""
    task: str
    """Its id."""
    reward: float | None
    """None: it wasn't scored, as `end_reason` and `error` say."""
    end_reason: str
    error: str | None
    scores: Mapping[str, float]
    seen: tuple[str, ...]
    """What the policy was shown: every tool result, in order."""
    seconds: float
    tool_errors: int
    """Calls that were answered with an error of any kind."""


async def play_all(
    bundle: Bundle,
    policies: Mapping[str, Policy],
    split: str,
    indices: Sequence[int],
    *,
    plays: int = 2,
    concurrency: int = 8,
    reward: str | None = None,
    sandbox: str = "auto",
    on_play: Callable[[Play], None] = lambda play: None,
) -> list[Play]:
    """Play these tasks of a split, `plays` times each, by each policy. `reward`: a step id, or `mean`.

    Raises what build_app raises, and RowsError.
    """
    app = build_app(bundle, max_concurrent_envs=concurrency, reward=reward_named(reward), sandbox=sandbox)
    engines = {name: ScriptedEngine(policy) for name, policy in policies.items()}
    async with serving(app) as url, serving(build_session_app(engines)) as sessions:
        with tempfile.TemporaryDirectory(prefix="agent-env-probe-") as folder:
            await write_rows(
                ServerSettings(urls=(url,), recover=0, reset_timeout=300.0, call_timeout=60.0), Path(folder)
            )
            rows = read_rows(Path(folder) / f"{split}.jsonl")
        jobs = iter([(index, name) for index in indices for name in policies for _ in range(plays)])
        played: list[Play] = []

        async def worker() -> None:
            for index, name in jobs:
                row = read_row(rows[index]["messages"], rows[index]["metadata"])
                async with SessionServer(sessions, name).chat(row) as chat:
                    result = await Rollout(row, chat).play()
                played.append(_play(name, index, result))
                on_play(played[-1])

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    order = {name: place for place, name in enumerate(policies)}
    return sorted(played, key=lambda play: (play.index, order[play.policy]))


def _play(policy: str, index: int, result: RolloutResult) -> Play:
    counts = result.counts
    return Play(
        policy=policy,
        index=index,
        task=result.task_id,
        reward=result.reward if result.status is Status.SCORED else None,
        end_reason=result.end_reason.value,
        error=result.error,
        scores=result.scores,
        seen=tuple(str(m.get("content")) for m in result.messages if m.get("role") == "tool"),
        seconds=result.seconds["total"],
        tool_errors=counts["tool_errors"] + counts["invalid_arguments"] + counts["unknown_tools"],
    )
