"""What clients may send, as pydantic models, and the JSON Schemas that `GET /schema` publishes.

Frames and actions are strict, as OpenEnv's are; a reset takes any further key and ignores it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

__all__ = [
    "ACTION_SCHEMA",
    "OBSERVATION_SCHEMA",
    "RESET_OBSERVATION_SCHEMA",
    "STATE_SCHEMA",
    "Action",
    "CallTool",
    "JsonRpcRequest",
    "ListTools",
    "McpFrame",
    "ResetFrame",
    "ResetRequest",
    "StateFrame",
    "StepFrame",
    "read_action",
]

_STRICT = ConfigDict(extra="forbid")


class ResetRequest(BaseModel):
    """Which task to play, and under which name. Other keys are ignored, as OpenEnv's servers do."""

    seed: StrictInt | None = None
    """Without an index, picks the task: one seed is one task."""
    episode_id: Annotated[StrictStr, Field(min_length=1, max_length=255)] | None = None
    split: StrictStr | None = None
    index: StrictInt | None = None
    task_id: StrictStr | None = None
    """A task's id or name, instead of split and index."""
    task_spec: dict[str, Any] | None = None
    """A task as the Task API gave it; its `id` counts."""


class ListTools(BaseModel):
    model_config = _STRICT
    type: Literal["list_tools"]
    metadata: dict[str, Any] = {}


class CallTool(BaseModel):
    model_config = _STRICT
    type: Literal["call_tool"] = "call_tool"
    tool_name: StrictStr
    arguments: dict[str, Any] = {}
    metadata: dict[str, Any] = {}


Action = ListTools | CallTool


def read_action(data: Any) -> Action:
    """An action; without a type it is a call. Raises pydantic.ValidationError."""
    if isinstance(data, dict) and data.get("type") == "list_tools":
        return ListTools.model_validate(data)
    return CallTool.model_validate(data)


class ResetFrame(BaseModel):
    model_config = _STRICT
    type: Literal["reset"]
    data: ResetRequest = ResetRequest()


class StepFrame(BaseModel):
    model_config = _STRICT
    type: Literal["step"]
    data: dict[str, Any]


class StateFrame(BaseModel):
    """`state`, or `close`: frames without data."""

    model_config = _STRICT
    type: Literal["state", "close"]


class McpFrame(BaseModel):
    model_config = _STRICT
    type: Literal["mcp"]
    data: dict[str, Any]


class JsonRpcRequest(BaseModel):
    model_config = _STRICT
    jsonrpc: Literal["2.0"]
    method: StrictStr
    params: dict[str, Any] = {}
    id: StrictStr | StrictInt | None = None


def _object(properties: dict[str, Any], required: list[str], extra: bool = False, title: str = "") -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": extra}
    return {"title": title, **schema} if title else schema


_STRING, _OBJECT = {"type": "string"}, {"type": "object"}
_REWARD = {"reward": {"type": ["number", "null"]}, "done": {"type": "boolean"}}
_TOOL = _object(
    {"name": _STRING, "description": _STRING, "input_schema": _OBJECT}, ["name", "description", "input_schema"]
)
_ERROR_TYPES = ["execution_error", "invalid_args", "transport_error", "tool_not_found", "timeout"]
_ERROR = _object({"error_type": {"enum": _ERROR_TYPES}, "message": _STRING}, ["error_type", "message"])

ACTION_SCHEMA: dict[str, Any] = {
    "title": "Action",
    "anyOf": [
        _object(
            {"type": {"const": "call_tool"}, "tool_name": _STRING, "arguments": _OBJECT, "metadata": _OBJECT},
            ["tool_name"],
            title="CallTool",
        ),
        _object({"type": {"const": "list_tools"}, "metadata": _OBJECT}, ["type"], title="ListTools"),
    ],
}

RESET_OBSERVATION_SCHEMA: dict[str, Any] = _object({"metadata": _OBJECT, **_REWARD}, [], title="ResetObservation")

OBSERVATION_SCHEMA: dict[str, Any] = {
    "title": "Observation",
    "anyOf": [
        _object(
            {
                "metadata": _OBJECT,
                **_REWARD,
                "tool_name": _STRING,
                "result": {},
                "error": {"anyOf": [_ERROR, {"type": "null"}]},
            },
            ["tool_name"],
            title="CallToolObservation",
        ),
        _object(
            {"metadata": _OBJECT, **_REWARD, "tools": {"type": "array", "items": _TOOL}},
            ["tools"],
            title="ListToolsObservation",
        ),
        RESET_OBSERVATION_SCHEMA,
    ],
}

STATE_SCHEMA: dict[str, Any] = _object(
    {
        "episode_id": {"type": ["string", "null"]},
        "step_count": {"type": "integer", "minimum": 0},
        "task_id": {"type": ["string", "null"]},
        "task_name": {"type": ["string", "null"]},
        "split": {"type": ["string", "null"]},
        "index": {"type": ["integer", "null"]},
        "turn": {"type": ["integer", "null"]},
        "done": {"type": "boolean"},
    },
    ["episode_id", "step_count"],
    extra=True,
    title="State",
)
