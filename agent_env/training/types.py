"""The data that rollouts speak in: why they end, what a row says, what a trainer gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["SCORED", "EndReason", "InvalidRow", "RolloutFailed", "RolloutResult", "Row", "ServerSettings", "Status"]


class EndReason(StrEnum):
    """Why a rollout ended. Every rollout has exactly one."""

    END_TURN = "end_turn"
    """The model ended its last turn with the tool."""
    REPLIED = "replied"
    """The model answered without a tool call. In a turn before the last, later turns end empty."""
    MAX_TURNS = "max_turns"
    """The limit of model turns was reached; scored with the env as it stands."""
    LENGTH = "length"
    """A reply was cut by the token limit: nothing of it ran; scored with the env as it stands."""
    CONTEXT_OVERFLOW = "context_overflow"
    """The context, or the session's max_seq_len, is used up; scored with the env as it stands."""
    INVALID_TOOL_CALLS = "invalid_tool_calls"
    """`max_invalid_calls` invalid calls in a row (off by default); scored with the env as it stands."""
    DEPLOY_FAILED = "deploy_failed"
    """No env within reset_timeout: the server was unreachable or full, or the deploy failed."""
    CALL_TIMEOUT = "call_timeout"
    """A tool call missed call_timeout. Failed, or scored when `on_call_timeout` is `score`."""
    ENV_LOST = "env_lost"
    """The env, its server or the connection went away and could not be recovered."""
    MODEL_TIMEOUT = "model_timeout"
    """The model missed model_timeout."""
    MODEL_ERROR = "model_error"
    """The session kept failing, or answered what is no chat completion."""
    UNSCORED = "unscored"
    """The verifier raised, timed out, or gave no finite number."""
    ABORTED = "aborted"
    """The trainer aborted the rollout."""
    INVALID_ROW = "invalid_row"
    """The row can't be played (not written by the writer, token variable unset, ...): the error says what to mend."""


SCORED = frozenset(
    {
        EndReason.END_TURN,
        EndReason.REPLIED,
        EndReason.MAX_TURNS,
        EndReason.LENGTH,
        EndReason.CONTEXT_OVERFLOW,
        EndReason.INVALID_TOOL_CALLS,
    }
)
"""The reasons that a policy brings about; with a reward they are scored. (`call_timeout` is by setting.)"""


class Status(StrEnum):
    SCORED = "scored"
    """The verifier's reward stands: train on it."""
    FAILED = "failed"
    """The infrastructure failed it: leave its group out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """A row's `metadata.server`: where and how its episode is played. Times in seconds. Every row has every key."""

    urls: tuple[str, ...]
    """http(s):// or ws(s):// addresses of equal servers; without credentials."""
    token_var: str | None = None
    """The *name* of the environment variable that holds the token; None: no token."""
    url_var: str | None = None
    """The name of an environment variable that, when set, replaces `urls` (comma-separated)."""
    bundle: str = ""
    """Fingerprint of the bundle that the row was written from; "" skips the check."""
    reset_timeout: float = 1800.0
    """For waiting for room and for the deploy, together, over all reconnects."""
    call_timeout: float = 600.0
    model_timeout: float = 1800.0
    """For one chat reply."""
    episode_timeout: float = 0.0
    """For the whole rollout; 0: none."""
    max_turns: int = 32
    """Chat requests, over all turns of the task."""
    max_result_chars: int = 50_000
    """A longer tool result is cut in its middle, with a note of how much."""
    max_invalid_calls: int = 0
    """Invalid calls in a row that end the episode; 0: no limit."""
    recover: int = 2
    """How often a lost env is replaced by replaying the recorded calls in a fresh one."""
    on_call_timeout: str = "fail"
    """`fail`, or `score` (the env as it stands)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row, read: what the model is shown first, and the episode to play."""

    messages: tuple[dict[str, Any], ...]
    """Chat messages (role, content), at least one."""
    tools: tuple[dict[str, Any], ...]
    """OpenAI tools, offered in every chat request."""
    split: str
    index: int
    """The task's place in its split."""
    task_id: str
    server: ServerSettings


class RolloutFailed(Exception):
    """A rollout can't go on. `reason` is how it is reported; str() is one sentence that says why, and what to mend."""

    def __init__(self, reason: EndReason, message: str) -> None:
        self.reason = reason
        super().__init__(message)


class InvalidRow(RolloutFailed):
    """A row can't be played: the sentence names the flag, file or variable to mend."""

    def __init__(self, message: str) -> None:
        super().__init__(EndReason.INVALID_ROW, message)


@dataclass(slots=True, kw_only=True)
class RolloutResult:
    """One rollout, as it is reported. `metadata()` in the trainer's module shapes it for that trainer."""

    status: Status
    end_reason: EndReason
    reward: float
    """Finite; 0.0 when failed."""
    error: str | None = None
    """One sentence; None when scored."""
    episode_id: str = ""
    task_id: str = ""
    split: str = ""
    index: int = -1
    scores: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """turns, tool_calls, tool_errors, invalid_arguments, unknown_tools, unparsed_tool_markup, cut_results,
    recoveries."""
    seconds: dict[str, float] = field(default_factory=dict)
    """wait, deploy, model, tool, score, total."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """The chat, as the session saw it."""
