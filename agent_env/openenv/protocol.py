"""The OpenEnv wire protocol's names, shared by server and client. No I/O, no dependency.

The facts are OpenEnv's (openenv 0.10.0): one JSON object a text frame, one reply a request, in order. What is ours on
top keeps to places where the protocol allows anything, so that any OpenEnv client still works:

- `/ws?wait=SECONDS`: reset queues for room, first come first served, instead of an error at the limit.
- `/ws?call_timeout=SECONDS`: the server answers a tool call that takes longer with an error of type `timeout`.
- reset's `task_id` names a task by id or name; its `seed`, without an index, counts through the given split, else
  through `train`, else through the first: one seed is one task, and consecutive seeds are consecutive tasks.
- reset's metadata: `prompt`, `system_prompt`, `task`, `turn`, `turns`, `replayable`, `bundle` (fingerprint),
  `seconds` {"wait", "deploy"}.
- an end_turn that opens the next turn: `result` {"prompt", "system_prompt"}, metadata `turn`.
- the last end_turn: `reward`, `done: true`, metadata `scores`, `task`, `seconds` {"score"}.
- a failed episode is an observation, not an error frame: `done: true`, `reward: null`, metadata
  {"status": "error", "reason": one of REASONS, "error": text, "task": ...}.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "CLOSE_RESTART",
    "CLOSE_TRY_AGAIN",
    "END_TURN",
    "MAX_MESSAGE_BYTES",
    "REASON_DEPLOY_FAILED",
    "REASON_ENV_LOST",
    "REASON_NO_EPISODE",
    "REASON_UNKNOWN_TASK",
    "REASON_UNSCORED",
    "Code",
]

END_TURN: Final = "end_turn"
"""The tool that every task offers: {"response": str} ends the turn."""

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""The largest frame either end sends or takes: uvicorn's own default, so a plain `uvicorn.run` needs no setting."""

CLOSE_RESTART: Final = 1012
"""Close code: the server is going away; open a new session."""
CLOSE_TRY_AGAIN: Final = 1013
"""Close code after a refusal for lack of room."""

REASON_UNKNOWN_TASK: Final = "unknown_task"
REASON_DEPLOY_FAILED: Final = "deploy_failed"
REASON_ENV_LOST: Final = "env_lost"
REASON_UNSCORED: Final = "unscored"
REASON_NO_EPISODE: Final = "no_episode"
"""A step before any reset, or after the end of the episode."""


class Code:
    """Error codes of `{"type": "error"}` frames."""

    INVALID_JSON: Final = "INVALID_JSON"
    UNKNOWN_TYPE: Final = "UNKNOWN_TYPE"
    VALIDATION_ERROR: Final = "VALIDATION_ERROR"
    EXECUTION_ERROR: Final = "EXECUTION_ERROR"
    CAPACITY_REACHED: Final = "CAPACITY_REACHED"
    FACTORY_ERROR: Final = "FACTORY_ERROR"
    SESSION_ERROR: Final = "SESSION_ERROR"
