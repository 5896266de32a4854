"""A task as an MCP server, for any MCP client: streamable HTTP (revision 2025-06-18) at `/ENV/SPLIT/INDEX/mcp`.

`initialize` begins an episode of that task, whose prompt is the reply's `instructions`; the `mcp-session-id` that it
gives is the episode's. `tools/call` of `end_turn` gives the next prompt or the reward. DELETE ends it, and so does
session_timeout without a request. Replies are plain JSON; this server says nothing unasked, so GET is 405.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from starlette.responses import Response

from agent_env import __version__
from agent_env.episode.types import ErrorKind, Prompt, Tool, ToolResult
from agent_env.openenv.messages import parse
from agent_env.openenv.play import Ended
from agent_env.openenv.replies import while_connected
from agent_env.openenv.rpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RpcError,
    answer,
    encode_reply,
    error_reply,
    string,
)
from agent_env.openenv.schemas import JsonRpcRequest, ResetRequest
from agent_env.openenv.sessions import Sessions, UnknownSession

__all__ = ["mcp_router"]

_VERSIONS = ("2025-06-18", "2025-03-26")
"""Newest first: what is answered to a client that asks for another."""
_SESSION = "mcp-session-id"
_RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"description": "A notification, taken"},
    400: {"description": "Not a JSON-RPC request, or without its session"},
    404: {"description": "Unknown environment, split, task or session"},
}


def mcp_router(sessions: Sessions) -> APIRouter:
    """The route, over a server's sessions."""
    router = APIRouter()
    endpoint = _Endpoint(sessions)

    @router.post("/{env_name}/{split}/{index}/mcp", responses=_RESPONSES)
    async def post(request: Request, env_name: str, split: str, index: int) -> Response:
        """One MCP message."""
        _check(sessions, env_name, split, index)
        return await endpoint.post(request, ResetRequest(split=split, index=index))

    @router.delete("/{env_name}/{split}/{index}/mcp", status_code=204, responses=_RESPONSES)
    async def delete(request: Request, env_name: str, split: str, index: int) -> Response:
        """End the session, and with it the episode."""
        _check(sessions, env_name, split, index)
        return await endpoint.delete(request)

    return router


def _check(sessions: Sessions, env_name: str, split: str, index: int) -> None:
    try:
        if env_name.casefold() != sessions.catalog.name.casefold():
            raise LookupError(f"unknown environment {env_name!r}")
        sessions.catalog.place(split, index)
    except LookupError as error:
        raise HTTPException(404, str(error.args[0])) from None


class _Endpoint:
    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def post(self, request: Request, task: ResetRequest) -> Response:
        try:
            message = parse(await request.body())
        except ValueError as error:
            return _reply(error_reply(None, PARSE_ERROR, f"Parse error: {error}"), 400)
        if not isinstance(message, dict):
            return _reply(error_reply(None, INVALID_REQUEST, "Invalid request: one JSON object a message"), 400)
        if message.get("method") == "initialize":
            return await self._open(request, message, task)
        session_id = request.headers.get(_SESSION)
        if session_id is None:
            return _reply(error_reply(None, INVALID_REQUEST, f"no {_SESSION} header: send initialize first"), 400)
        if "method" not in message or "id" not in message:  # a response, or a notification: nothing is done about it
            return Response(status_code=202)
        return await self._answer(request, message, session_id)

    async def delete(self, request: Request) -> Response:
        try:
            await self._sessions.close(request.headers.get(_SESSION, ""))
        except UnknownSession as error:
            raise HTTPException(404, str(error)) from None
        return Response(status_code=204)

    async def _open(self, request: Request, message: dict[str, Any], task: ResetRequest) -> Response:
        opened: list[str] = []

        async def initialize(parsed: JsonRpcRequest) -> dict[str, Any]:
            session = await self._sessions.create()
            try:
                prompt = (await session.reset(task)).prompt
            except BaseException:
                await self._sessions.close(session.id)
                raise
            opened.append(session.id)
            asked = parsed.params.get("protocolVersion")
            return {
                "protocolVersion": asked if asked in _VERSIONS else _VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self._sessions.catalog.name, "version": __version__},
                "instructions": "\n\n".join(text for text in (prompt.system_prompt, prompt.prompt) if text),
            }

        reply = await while_connected(request, answer(message, initialize))
        return _reply(reply, headers={_SESSION: opened[0]} if opened else None)

    async def _answer(self, request: Request, message: dict[str, Any], session_id: str) -> Response:
        try:
            async with self._sessions.using(session_id) as session:

                async def dispatch(parsed: JsonRpcRequest) -> dict[str, Any]:
                    if parsed.method == "ping":
                        return {}
                    if parsed.method == "tools/list":
                        return {"tools": [_tool(tool) for tool in await session.tools(step=False)]}
                    if parsed.method == "tools/call":
                        return await _call(session.call, parsed.params)
                    raise RpcError(METHOD_NOT_FOUND, f"Method not found: {parsed.method[:100]}")

                return _reply(await while_connected(request, answer(message, dispatch)))
        except UnknownSession as error:
            return _reply(error_reply(None, INVALID_REQUEST, str(error)), 404)


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.input_schema)}


_Call = Callable[[str, Mapping[str, Any]], Awaitable[ToolResult | Prompt | Ended]]


async def _call(call: _Call, params: Mapping[str, Any]) -> dict[str, Any]:
    name, arguments = string(params, "name"), params.get("arguments")
    if not isinstance(arguments, dict | None):
        raise RpcError(INVALID_PARAMS, "Invalid params: arguments: not an object")
    result = await call(name, arguments or {})
    if isinstance(result, Prompt):
        turn = {"prompt": result.prompt, "system_prompt": result.system_prompt, "turn": result.turn}
        return _result(result.prompt, turn)
    if isinstance(result, Ended):
        end = {"done": True, "reward": result.outcome.reward, "scores": dict(result.outcome.scores)}
        return _result(f"The episode has ended. Reward: {result.outcome.reward:g}", end)
    if result.error is ErrorKind.UNKNOWN_TOOL:
        raise RpcError(INVALID_PARAMS, result.message)
    if result.error is not None:
        return {**_result(result.message), "isError": True}
    structured = {} if result.structured is None else {"structuredContent": result.structured}
    return {"content": list(result.content), **structured, "isError": False}


def _result(text: str, structured: dict[str, Any] | None = None) -> dict[str, Any]:
    content = {"content": [{"type": "text", "text": text}], "isError": False}
    return content if structured is None else {**content, "structuredContent": structured}


def _reply(reply: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode_reply(reply), status, headers, media_type="application/json")
