"""Bundles played as Miles plays them: rows by the writer, `agent.run` with a session of its own, the reward hook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_env.loopback import serving
from agent_env.openenv import build_app
from agent_env.training.miles import agent
from agent_env.training.miles.rows import write_rows
from agent_env.training.policies import Policy
from agent_env.training.rehearsal import Hooks, Rehearsal, Sample, read_rows
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine
from agent_env.training.types import ServerSettings

HOOKS = Hooks(run=agent.run, reward=agent.reward, keep=agent.keep_scored_groups)


async def play(bundle: Path | str, policy: Policy, rows: Path, *, reward: Any = None, task: str = "") -> Sample:
    """One rollout of the task of that name (the first whose id contains it). `rows`: a folder for the rows."""
    app = build_app(bundle, max_concurrent_envs=2, reward=reward, sandbox="process")
    async with (
        serving(app) as url,
        serving(build_session_app({"one": ScriptedEngine(policy)}, strict=True)) as sessions,
    ):
        await write_rows(ServerSettings(urls=(url,), recover=0), rows)
        row = next(row for row in read_rows(rows / "all.jsonl") if task in row["metadata"]["task_id"])
        async with Rehearsal(HOOKS, sessions, group_size=1) as rehearsal:
            group = await rehearsal.play_group(row)
    (sample,) = group.samples
    assert sample.warnings == []
    return sample


def results(sample: Sample) -> list[str]:
    """What the model was shown for each of its calls, in order, but for the last ones."""
    messages = sample.records[-1]["request"]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]
