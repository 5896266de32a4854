"""Samples as Miles' hooks are given them, for the tests of the examples."""

from __future__ import annotations

from typing import Any

from agent_env.training.rehearsal import Sample


def sample(end_reason: str = "end_turn", reward: float | None = 0.5, **changes: Any) -> Sample:
    """One that the agent function has played."""
    failed = end_reason in {"env_lost", "deploy_failed", "model_timeout", "unscored", "made_up"}
    return Sample(
        prompt=[],
        status=changes.pop("status", Sample.Status.COMPLETED),
        reward=reward,
        metadata={
            "reward": 0.0 if failed else reward,
            "agentenv": {
                "status": "failed" if failed else "scored",
                "end_reason": end_reason,
                "seconds": {"deploy": 0.25, "model": 2.0},
            },
            "agent_metrics": {"total_tool_time": 0.5, "turns": changes.pop("turns", 2), "tool_errors": 0},
        },
        **changes,
    )


def bare(status: Sample.Status = Sample.Status.ABORTED) -> Sample:
    """One without what the agent function returns."""
    return Sample(prompt=[], metadata={}, status=status)
