"""JSON-RPC 2.0 as this server speaks it: how a request is read, and what every failure is answered with."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError

from agent_env.episode.types import EpisodeFailed
from agent_env.openenv.admission import AtCapacity, Closing
from agent_env.openenv.messages import Unsendable, encode
from agent_env.openenv.protocol import REASON_NO_EPISODE
from agent_env.openenv.schemas import JsonRpcRequest
from agent_env.openenv.session import NoEpisode, SessionClosed
from agent_env.openenv.sessions import UnknownSession

__all__ = [
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "SERVER_ERROR",
    "RpcError",
    "answer",
    "at_capacity",
    "encode_reply",
    "error_reply",
    "string",
]

_log = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000


class RpcError(Exception):
    """A request is answered with an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


async def answer(request: Any, dispatch: Callable[[JsonRpcRequest], Awaitable[Any]]) -> dict[str, Any]:
    """The reply to a request's value; `dispatch` gives the result. Never raises, but for cancellation."""
    try:
        parsed = JsonRpcRequest.model_validate(request)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return error_reply(_id_of(request), INVALID_REQUEST, f"Invalid request: {where}: {first['msg']}")
    try:
        return {"jsonrpc": "2.0", "id": parsed.id, "result": await dispatch(parsed)}
    except RpcError as error:
        return error_reply(parsed.id, error.code, str(error), error.data)
    except UnknownSession as error:
        return error_reply(parsed.id, INVALID_PARAMS, str(error))
    except AtCapacity as full:
        return at_capacity(full, parsed.id)
    except NoEpisode as missing:
        return error_reply(parsed.id, SERVER_ERROR, str(missing), {"reason": REASON_NO_EPISODE})
    except EpisodeFailed as failure:
        return error_reply(parsed.id, SERVER_ERROR, str(failure), {"reason": failure.reason.value})
    except (Closing, SessionClosed) as gone:
        return error_reply(parsed.id, SERVER_ERROR, str(gone))
    except Exception as error:
        _log.exception("JSON-RPC %s failed", parsed.method[:40])
        return error_reply(parsed.id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def at_capacity(full: AtCapacity, request_id: str | int | None = None) -> dict[str, Any]:
    """The reply of a full server."""
    data = {"active_sessions": full.active, "max_sessions": full.limit}
    return error_reply(request_id, SERVER_ERROR, str(full), data)


def error_reply(request_id: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    """A reply that holds an error."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": data}}


def encode_reply(reply: Mapping[str, Any]) -> str:
    """A reply's text; one that can't be sent becomes an error."""
    try:
        return encode(reply)
    except Unsendable as error:
        return encode(error_reply(reply.get("id"), SERVER_ERROR, f"the result can't be sent: {error}"))


def string(params: Mapping[str, Any], key: str) -> str:
    """A parameter that is a non-empty string. Raises RpcError."""
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise RpcError(INVALID_PARAMS, f"Invalid params: {key}: not a non-empty string")
    return value


def _id_of(request: Any) -> str | int | None:
    given = request.get("id") if isinstance(request, Mapping) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None
