"""A session's history and the rules that Miles' session server holds it to. No I/O.

The facts are Miles' (its linear session server, `--use-session-server` v1): a request's messages must extend what the
session holds; a request that departs from it discards at most one generated turn, silently; two or more are an error.
A discarded turn is not trained on, so nothing may be discarded by accident: `Session.warnings` names every such thing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ALL_ROLES",
    "BadRequest",
    "InternalError",
    "Record",
    "Session",
    "SessionError",
    "SessionNotFound",
    "message_matches",
]

COMPARED = ("role", "content", "reasoning_content", "tool_calls")
"""What a chat template reads of a message. The rest (`name`, `tool_call_id`, extra keys) is not compared."""

FORCED = ("stream", "stream_options", "logprobs", "return_meta_info", "no_stop_trim", "input_ids", "lora_path")
"""Fields that the session server sets itself, whatever the request says."""

UNHEEDED = {"no_stop_trim": True, "stream": False}
"""Values of forced fields that are no sign of a mistake: Miles' own request_kwargs hold the first."""

ALL_ROLES = frozenset({"tool", "user", "system", "assistant"})
"""The roles that may be appended under `--tito-model qwen3`; some families' templates allow fewer."""

MAX_ROLLBACK = 1


class SessionError(Exception):
    """Answered as {"error": str(error)} with `status`."""

    status = 500


class SessionNotFound(SessionError):
    """The session was never opened, or has been deleted."""

    status = 404

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session not found: session_id={session_id}")


class BadRequest(SessionError):
    """The request can't belong to this session."""

    status = 400


class InternalError(Exception):
    """Where Miles' server would trip over the request itself: 500 as plain text, and the connection closes."""


@dataclass(frozen=True, slots=True)
class Record:
    """One chat turn, as the session saw it."""

    request_timestamp: float
    """Seconds since the epoch."""
    timestamp: float
    request: Mapping[str, Any]
    """With the forced fields set."""
    response: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {
            "timestamp": self.timestamp,
            "request_timestamp": self.request_timestamp,
            "method": "POST",
            "path": "/v1/chat/completions",
            "status_code": 200,
            "request": self.request,
            "response": self.response,
        }


def _comparable(message: Mapping[str, Any]) -> list[Any]:
    """The compared fields; None, "" and [] are equal, and so are tool calls that differ in `index` only."""
    values: list[Any] = []
    for key in COMPARED:
        value = message.get(key)
        if key == "tool_calls" and isinstance(value, list):
            value = [
                {k: v for k, v in call.items() if k != "index"} if isinstance(call, dict) else call for call in value
            ]
        values.append(None if value in ("", []) else value)
    return values


def message_matches(stored: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Whether a message that was sent again is the one the session holds (Miles' `strict` matcher)."""
    return _comparable(stored) == _comparable(sent)


@dataclass(slots=True)
class Session:
    """One session. Requests go through `prepare`, then the model, then `commit`."""

    id: str
    policy: str
    """Which of the server's models plays it."""
    append_roles: frozenset[str] = ALL_ROLES
    strict: bool = False
    """Refuse with 400 whatever would only be warned of."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    """`messages[:_ends[i]]` ends with the i-th generated turn."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request with the forced fields set, once its messages are known to extend the history.

        Discards a generated turn if the messages depart from it. Raises BadRequest or InternalError.
        """
        template = request.get("chat_template_kwargs")
        if template is not None and not isinstance(template, dict):
            raise BadRequest("chat_template_kwargs must be an object")
        messages = request.get("messages", [])
        _check_renderable(messages)
        self._check_fields(request)
        self._check_tools(request)
        self._roll_back(messages)
        for index, message in enumerate(messages):
            if index >= len(self.messages) > 0 and message.get("role") not in self.append_roles:
                raise BadRequest(
                    f"appended message at index {index} has role={message.get('role')!r}, "
                    f"allowed={sorted(self.append_roles)}; this model's chat template does not support that role there"
                )
            if message.get("role") == "tool" and not isinstance(message.get("content"), str):
                self._warn(f"message {index}: a tool result that is no text renders empty under some chat templates")
        if self.records and self.records[-1].response["choices"][0]["finish_reason"] == "length":
            self._warn(f"turn {len(self.records)} was cut by the token limit: nothing after it is trained on")
        forced = {key: value for key, value in request.items() if key not in ("stream", "stream_options")}
        return forced | {"logprobs": True, "return_meta_info": True, "no_stop_trim": False}

    def commit(self, expected: int, started: float, request: dict[str, Any], response: dict[str, Any]) -> None:
        """Record a turn that was prepared when the session had `expected` turns; a later one than that is lost."""
        if len(self.records) != expected:
            self._note("two requests at once: the answer that came second was not recorded, and is lost")
            return
        sent = request["messages"]
        self.messages = [*self.messages, *sent[len(self.messages) :], response["choices"][0]["message"]]
        self._ends.append(len(sent) + 1)
        self.records.append(
            Record(request_timestamp=started, timestamp=time.time(), request=request, response=response)
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "session_id": self.id,
            "records": [record.as_json() for record in self.records],
            "metadata": {"policy": self.policy, "warnings": self.warnings},
        }

    def _roll_back(self, sent: Sequence[dict[str, Any]]) -> None:
        same = 0
        for stored, message in zip(self.messages, sent, strict=False):
            if not message_matches(stored, message):
                break
            same += 1
        if same == len(self.messages):
            return
        kept = sum(end <= same for end in self._ends)
        discarded = len(self._ends) - kept
        if discarded > MAX_ROLLBACK:
            raise BadRequest(
                f"rollback failed: discard_count={discarded} exceeds max_assistant_rollback_steps={MAX_ROLLBACK} "
                f"(the session holds {len(self.messages)} messages, the request {len(sent)}, "
                f"and they differ from message {same} on)"
            )
        self._warn(
            f"turn {len(self._ends)} was discarded and is not trained on: the request "
            + (f"differs from the history at message {same}" if same < len(sent) else "was sent again")
        )
        self.messages = self.messages[: self._ends[kept - 1]] if kept else []
        del self._ends[kept:], self.records[kept:]

    def _check_fields(self, request: Mapping[str, Any]) -> None:
        for key in FORCED:
            if key in request and (key not in UNHEEDED or request[key] != UNHEEDED[key]):
                self._warn(f"{key!r} is set by the session server; some versions of Miles refuse a request with it")

    def _check_tools(self, request: Mapping[str, Any]) -> None:
        before = self.records[0].request.get("tools") if self.records else None
        if before and not request.get("tools"):
            self._warn("`tools` is missing: without it, tool calls come back as plain text")
        elif before and request["tools"] != before:
            self._warn("`tools` differs from the session's first: some versions of Miles refuse that")

    def _warn(self, what: str) -> None:
        if self.strict:
            raise BadRequest(what)
        self._note(what)

    def _note(self, what: str) -> None:
        self.warnings.append(f"request {len(self.records) + 1}: {what}")


def _check_renderable(messages: Any) -> None:
    """Raise InternalError for what breaks a chat template."""
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise InternalError("messages must be a non-empty list of objects")
    for message in messages:
        for call in message.get("tool_calls") or ():
            try:
                arguments = call["function"]["arguments"]
                if isinstance(arguments, str):
                    json.loads(arguments)
            except (KeyError, TypeError, ValueError, RecursionError) as error:
                raise InternalError(f"a tool call in the history can't be rendered: {error!r}") from error
