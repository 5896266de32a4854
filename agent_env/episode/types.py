"""What an episode says: its tools, results, turns and outcome, and the events that monitors hear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "END_TURN_TOOL",
    "EpisodeFailed",
    "ErrorKind",
    "Event",
    "Failure",
    "Listener",
    "Outcome",
    "Prompt",
    "Tool",
    "ToolResult",
    "no_listener",
]


class ErrorKind(StrEnum):
    """Why a tool call has an error instead of a value. The values are OpenEnv's `error_type`s."""

    EXECUTION = "execution_error"
    """The tool itself reported an error: the model's to see."""
    INVALID_ARGUMENTS = "invalid_args"
    """The tool's schema refused the arguments: the model's to see."""
    UNKNOWN_TOOL = "tool_not_found"
    """No such tool is offered in this turn: the model's to see."""
    TIMEOUT = "timeout"
    """The call missed its deadline. The env is still there, and may be scored as it stands."""
    TRANSPORT = "transport_error"
    """The env is gone or unreachable: an infrastructure failure, never shown to a model."""


class Failure(StrEnum):
    """Why the episode itself failed. The values go out as `metadata.reason`."""

    UNKNOWN_TASK = "unknown_task"
    DEPLOY_FAILED = "deploy_failed"
    ENV_LOST = "env_lost"
    UNSCORED = "unscored"


class EpisodeFailed(Exception):
    """The infrastructure failed this episode; `reason` says how, str() says why in one sentence."""

    def __init__(self, reason: Failure, message: str) -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    input_schema: Mapping[str, Any]


END_TURN_TOOL: Final = Tool(
    name="end_turn",
    description="End your turn. `response` is your answer to the prompt.",
    input_schema={
        "type": "object",
        "properties": {"response": {"type": "string", "description": "Your answer to the prompt."}},
    },
)
"""Offered in every turn beside the envs' tools; it is `Episode.end_turn` that carries it out."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool's answer: a value, or an error with its kind."""

    content: tuple[Mapping[str, Any], ...] = ()
    """MCP content blocks, as the env gave them."""
    structured: Any = None
    """MCP structuredContent, if the env gave any."""
    error: ErrorKind | None = None
    message: str = ""
    """The error's text; "" without one."""

    @property
    def text(self) -> str:
        """The text blocks, joined by newlines; "" if there are none."""
        return "\n".join(block["text"] for block in self.content if block.get("type") == "text" and "text" in block)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A turn as the model is shown it."""

    turn: int
    """From 0."""
    prompt: str
    system_prompt: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A scored episode."""

    reward: float
    """Finite."""
    scores: Mapping[str, float]
    """By the id of the step that gave it."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in an episode; `data` is JSON. Kinds and their data:

    - `deployed`: {"seconds", "envs": [...]}
    - `turn_opened`: {"turn", "prompt", "system_prompt"}
    - `call`: {"tool", "arguments", "seconds", "result": text, "error": kind | None}
    - `turn_ended`: {"turn", "response"}
    - `scored`: {"seconds", "reward", "scores"}
    - `failed`: {"reason", "message"}
    - `closed`: {"seconds", "leaked"}, the teardown's, and how many envs it could not end; always the last
    """

    kind: str
    episode_id: str
    task_id: str
    time: float
    """Seconds since the epoch."""
    data: Mapping[str, Any] = field(default_factory=dict)


Listener = Callable[[Event], None]
"""Called on the event loop: must not block and must not raise."""


def no_listener(event: Event) -> None:
    """Hears nothing."""
