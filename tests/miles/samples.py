"""What Miles hands to its hooks: its arguments, and samples with what `run` returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Status(Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"


@dataclass
class Sample:
    reward: Any = 1.0
    metadata: Any = field(default_factory=lambda: scored())
    status: Any = Status.COMPLETED


@dataclass
class Args:
    reward_key: str | None = None
    prompt_data: Any = None
    eval_prompt_data: Any = None
    eval_num_gpus: int | None = None


def scored(reward: Any = 1.0) -> dict[str, Any]:
    return {"reward": reward, "agentenv": {"status": "scored", "end_reason": "end_turn"}}


def flagged() -> dict[str, Any]:
    return {"reward": 0.0, "agentenv": {"status": "failed", "end_reason": "env_lost"}}
