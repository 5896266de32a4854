"""A rollout's result as the metadata that Miles merges into its sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agent_env.training.types import RolloutResult

__all__ = ["plain", "report"]


def report(result: RolloutResult, base_url: Any) -> dict[str, Any]:
    """The result as metadata: plain JSON, under keys that Miles doesn't reserve."""
    seconds = {phase: round(value, 6) for phase, value in result.seconds.items()}
    outside = sum((value for phase, value in seconds.items() if phase not in ("model", "total")), start=0.0)
    made = {
        "reward": result.reward,
        "agentenv": {
            "status": result.status.value,
            "end_reason": result.end_reason.value,
            "error": result.error,
            "episode_id": result.episode_id,
            "session_id": base_url.rstrip("/").rpartition("/")[2] if isinstance(base_url, str) else "",
            "task_id": result.task_id,
            "split": result.split,
            "index": result.index,
            "scores": result.scores,
            **result.counts,
            "seconds": seconds,
        },
        # What the rollout spent outside the model: Miles takes it out of its tokens per second.
        "agent_metrics": {"total_tool_time": round(outside, 6), **result.counts},
    }
    return dict(plain(made))


def plain(value: Any) -> Any:
    """JSON of plain types, valid in UTF-8: other types as their text, non-finite numbers as null."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(plain(str(key))): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value).encode(errors="replace").decode()
