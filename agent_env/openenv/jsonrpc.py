"""OpenEnv's JSON-RPC methods, over HTTP, over a WebSocket of their own, and inside /ws frames.

Not an MCP endpoint (`mcp_endpoint` is): it knows openenv/session/create and close, tools/list and tools/call, and
nothing else. A call that fails is answered with a JSON-RPC error, so that every client raises.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from agent_env.episode.types import ErrorKind, Prompt
from agent_env.openenv.answers import call_value, tool_list
from agent_env.openenv.messages import parse
from agent_env.openenv.play import Ended
from agent_env.openenv.rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    SERVER_ERROR,
    RpcError,
    answer,
    encode_reply,
    error_reply,
    string,
)
from agent_env.openenv.schemas import JsonRpcRequest, ResetRequest
from agent_env.openenv.session import Session
from agent_env.openenv.sessions import Sessions

__all__ = ["JsonRpc"]


class JsonRpc:
    """Answers requests. `own` is the session of the WebSocket that the request came in on, if it has one.

    With `autostart`, tools/list and tools/call begin the first task's episode in an own session that has none yet: for
    a WebSocket that only speaks JSON-RPC, which has no reset.
    """

    def __init__(self, sessions: Sessions, *, autostart: bool = False) -> None:
        self._sessions = sessions
        self._autostart = autostart

    async def answer_text(self, text: str | bytes, own: Session | None = None) -> str:
        """The answer to a request's text, as text."""
        try:
            request = parse(text)
        except ValueError as error:
            return encode_reply(error_reply(None, PARSE_ERROR, f"Parse error: {error}"))
        return encode_reply(await self.answer(request, own))

    async def answer(self, request: Any, own: Session | None = None) -> dict[str, Any]:
        """The answer to a request's value."""
        return await answer(request, lambda parsed: self._dispatch(parsed, own))

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
        raise RpcError(METHOD_NOT_FOUND, f"Method not found: {request.method[:100]}")

    async def _close(self, params: Mapping[str, Any], own: Session | None) -> dict[str, Any]:
        session_id = string(params, "session_id")
        if own is not None and own.id == session_id:
            raise RpcError(INVALID_REQUEST, "a WebSocket's own session ends with the WebSocket")
        if await self._sessions.close(session_id):
            return {"session_id": session_id, "closed": True}
        return {"session_id": session_id, "closed": False, "closing": True}

    async def _call(self, params: Mapping[str, Any], own: Session | None) -> Any:
        name, arguments = string(params, "name"), params.get("arguments")
        if not isinstance(arguments, dict | None):
            raise RpcError(INVALID_PARAMS, "Invalid params: arguments: not an object")
        async with self._session(params, own) as session:
            result = await session.call(name, arguments or {})
        if isinstance(result, Prompt):
            return {"prompt": result.prompt, "system_prompt": result.system_prompt, "turn": result.turn}
        if isinstance(result, Ended):
            return {"done": True, "reward": result.outcome.reward, "scores": dict(result.outcome.scores)}
        if result.error is not None:
            refused = result.error in (ErrorKind.INVALID_ARGUMENTS, ErrorKind.UNKNOWN_TOOL)
            code = INVALID_PARAMS if refused else SERVER_ERROR
            raise RpcError(code, result.message, {"error_type": result.error.value})
        return call_value(result)

    def _session(self, params: Mapping[str, Any], own: Session | None) -> AbstractAsyncContextManager[Session]:
        if params.get("session_id") is not None:
            session_id = string(params, "session_id")
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
