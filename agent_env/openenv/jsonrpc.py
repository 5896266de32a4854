"""OpenEnv's JSON-RPC 2.0 methods, over HTTP, over a WebSocket of their own, and inside /ws frames.

Not an MCP endpoint: it knows openenv/session/create and close, tools/list and tools/call, and nothing else. A call
that fails is answered with a JSON-RPC error, so that every client raises.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from pydantic import ValidationError

from agent_env.episode.types import EpisodeFailed, ErrorKind, Prompt, ToolResult
from agent_env.openenv.admission import AtCapacity, Closing
from agent_env.openenv.answers import call_value, tool_list
from agent_env.openenv.messages import Unsendable, encode, parse
from agent_env.openenv.play import Ended
from agent_env.openenv.schemas import JsonRpcRequest, ResetRequest
from agent_env.openenv.session import NoEpisode, Session, SessionClosed
from agent_env.openenv.sessions import Sessions, UnknownSession

__all__ = ["JsonRpc", "at_capacity", "encode_reply"]

_log = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
SERVER_ERROR = -32000


class _RpcError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.data = data
        super().__init__(message)


class JsonRpc:
    """Answers requests. `own` is the session of the WebSocket that the request came in on, if it has one.

    With `autostart`, tools/list and tools/call begin the first task's episode in an own session that has none yet: for
    a WebSocket that only speaks JSON-RPC, which has no reset.
    """

    def __init__(self, sessions: Sessions, *, autostart: bool = False) -> None:
        self._sessions = sessions
        self._autostart = autostart

    async def answer_text(self, text: str | bytes, own: Session | None = None) -> str:
        """The answer to a request's text, as text. Raises SessionClosed of `own`."""
        try:
            request = parse(text)
        except ValueError as error:
            reply = _error(None, PARSE_ERROR, f"Parse error: {error}")
        else:
            reply = await self.answer(request, own)
        return encode_reply(reply)

    async def answer(self, request: Any, own: Session | None = None) -> dict[str, Any]:
        """The answer to a request's value."""
        try:
            parsed = JsonRpcRequest.model_validate(request)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            given = request.get("id") if isinstance(request, Mapping) else None
            given = given if isinstance(given, str | int) and not isinstance(given, bool) else None
            return _error(given, INVALID_REQUEST, f"Invalid request: {where}: {first['msg']}")
        try:
            return {"jsonrpc": "2.0", "id": parsed.id, "result": await self._dispatch(parsed, own)}
        except _RpcError as error:
            return _error(parsed.id, error.code, str(error), error.data)
        except UnknownSession as error:
            return _error(parsed.id, INVALID_PARAMS, str(error))
        except AtCapacity as full:
            return at_capacity(full, parsed.id)
        except NoEpisode as missing:
            return _error(parsed.id, SERVER_ERROR, str(missing), {"reason": "no_episode"})
        except EpisodeFailed as failure:
            return _error(parsed.id, SERVER_ERROR, str(failure), {"reason": failure.reason.value})
        except (Closing, SessionClosed) as gone:
            return _error(parsed.id, SERVER_ERROR, str(gone))
        except Exception as error:
            _log.exception("JSON-RPC %s failed", parsed.method[:40])
            return _error(parsed.id, INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    async def _dispatch(self, request: JsonRpcRequest, own: Session | None) -> Any:
        if request.method == "openenv/session/create":
            return {"session_id": own.id if own is not None else (await self._sessions.create()).id}
        if request.method == "openenv/session/close":
            return await self._close(request.params, own)
        if request.method == "tools/list":
            async with self._session(request.params, own) as session:
                return {"tools": tool_list(await session.tools(step=False))}
        if request.method == "tools/call":
            return await self._call(request.params, own)
        raise _RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")

    async def _close(self, params: Mapping[str, Any], own: Session | None) -> dict[str, Any]:
        session_id = _string(params, "session_id")
        if own is not None and own.id == session_id:
            raise _RpcError(INVALID_REQUEST, "a WebSocket's own session ends with the WebSocket")
        if await self._sessions.close(session_id):
            return {"session_id": session_id, "closed": True}
        return {"session_id": session_id, "closed": False, "closing": True}

    async def _call(self, params: Mapping[str, Any], own: Session | None) -> Any:
        name, arguments = _string(params, "name"), params.get("arguments")
        if not isinstance(arguments, dict | None):
            raise _RpcError(INVALID_PARAMS, "Invalid params: arguments: not an object")
        async with self._session(params, own) as session:
            result = await session.call(name, arguments or {})
        if isinstance(result, Prompt):
            return {"prompt": result.prompt, "system_prompt": result.system_prompt, "turn": result.turn}
        if isinstance(result, Ended):
            return {"done": True, "reward": result.outcome.reward, "scores": dict(result.outcome.scores)}
        if result.error is not None:
            raise _RpcError(_code_of(result), result.message, {"error_type": result.error.value})
        return call_value(result)

    def _session(self, params: Mapping[str, Any], own: Session | None) -> AbstractAsyncContextManager[Session]:
        if params.get("session_id") is not None:
            session_id = _string(params, "session_id")
            if own is None or own.id != session_id:
                return self._sessions.using(session_id)
        return self._for_one_request() if own is None else self._as_it_is(own)

    @asynccontextmanager
    async def _as_it_is(self, own: Session) -> AsyncIterator[Session]:
        if self._autostart and own.progress.episode_id is None:
            await own.reset(ResetRequest())
        yield own

    @asynccontextmanager
    async def _for_one_request(self) -> AsyncIterator[Session]:
        """A session of the first task that lives for one request, as OpenEnv's servers make."""
        session = self._sessions.open()
        try:
            await session.admit()
            await session.reset(ResetRequest())
            yield session
        finally:
            await self._sessions.end(session)


def at_capacity(full: AtCapacity, request_id: str | int | None = None) -> dict[str, Any]:
    """The reply of a full server."""
    data = {"active_sessions": full.active, "max_sessions": full.limit}
    return _error(request_id, SERVER_ERROR, str(full), data)


def encode_reply(reply: Mapping[str, Any]) -> str:
    """A reply's text; one that can't be sent becomes an error."""
    try:
        return encode(reply)
    except Unsendable as error:
        return encode(_error(reply.get("id"), SERVER_ERROR, f"the result can't be sent: {error}"))


def _string(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise _RpcError(INVALID_PARAMS, f"Invalid params: {key}: not a non-empty string")
    return value


def _code_of(result: ToolResult) -> int:
    return INVALID_PARAMS if result.error in (ErrorKind.INVALID_ARGUMENTS, ErrorKind.UNKNOWN_TOOL) else SERVER_ERROR


def _error(request_id: Any, code: int, message: str, data: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message, "data": data}}
