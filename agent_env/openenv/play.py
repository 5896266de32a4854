"""What a session plays, what it reports of it, and what a server counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from agent_env.episode.types import Outcome, Prompt, Tool, ToolResult
from agent_env.openenv.catalog import Place

__all__ = ["Activity", "Ended", "EpisodeMaker", "Opened", "Phase", "Playable", "Progress", "Tally"]


class Playable(Protocol):
    """What a session needs of an episode. Every method may be cancelled."""

    async def start(self) -> Prompt:
        """Deploy. Raises EpisodeFailed (DEPLOY_FAILED)."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What the open turn offers, end_turn among them."""

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        """Call a tool; an env that is gone is a result of kind TRANSPORT."""

    async def end_turn(self, response: str) -> Prompt | Outcome:
        """The next turn's prompt, or the score. Raises EpisodeFailed."""

    async def close(self) -> None:
        """Tear down. Idempotent, bounded in time."""


EpisodeMaker = Callable[[Place, str], Playable]
"""Makes a fresh episode of a task, under the given episode id; deploys nothing yet."""


class Phase(StrEnum):
    """What a session is doing."""

    IDLE = "idle"
    """Between two operations: the model thinks."""
    WAITING = "waiting"
    """Queueing for room."""
    DEPLOYING = "deploying"
    CALLING = "calling"
    SCORING = "scoring"
    CLOSING = "closing"


@dataclass(slots=True)
class Progress:
    """Where the current episode, or the last one, stands."""

    episode_id: str | None = None
    place: Place | None = None
    turn: int | None = None
    steps: int = 0
    """Step messages and tool calls so far, those that only list tools and those that fail among them."""
    done: bool = False
    began: float = field(default_factory=time.monotonic)
    """When its reset was asked for (time.monotonic)."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A reset's result. Times in seconds."""

    prompt: Prompt
    place: Place
    wait: float
    deploy: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a last end_turn. `score` is the verifier's time in seconds."""

    outcome: Outcome
    place: Place
    score: float


@dataclass(slots=True)
class Activity:
    """For /status: what a session does, and since when (time.monotonic)."""

    phase: Phase = Phase.IDLE
    tool: str | None = None
    since: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Tally:
    """What a server's sessions have been through."""

    ended: Counter[str] = field(default_factory=Counter)
    """Episodes by how they ended: `scored`, a `Failure`, or `abandoned`."""
    on_wait: Callable[[float], None] = lambda seconds: None
    """Told how long each episode waited for room."""
