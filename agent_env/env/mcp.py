"""MCP over streamable HTTP, the server's side (specification 2025-06-18): tools, and nothing else.

Every reply is a JSON body; no server-sent events are needed, since an env never speaks first. Batches are refused, as
the specification has it since 2025-06-18.
"""

from __future__ import annotations

import os
from typing import Any, TypeGuard

from agent_env.env import jsontext
from agent_env.env.http1 import Request, Response, json_response
from agent_env.env.service import Service

__all__ = ["McpEndpoint"]

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_SESSIONS = 64
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


class McpEndpoint:
    """Serves `/mcp` for one env. Sessions are only names: they all see the one env."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sessions: dict[str, None] = {}  # in the order they were opened; the oldest gives way to the 65th

    async def handle(self, request: Request) -> Response:
        if request.method not in ("POST", "DELETE"):
            return json_response(_error(None, INVALID_REQUEST, "use POST or DELETE"), 405, {"Allow": "POST, DELETE"})
        version = request.headers.get("mcp-protocol-version")
        if version is not None and version not in VERSIONS:
            return json_response(_error(None, INVALID_REQUEST, f"unsupported protocol version {version[:40]}"), 400)
        if request.method == "DELETE":
            return self._unknown_session(request) or self._close(request)
        try:
            message = jsontext.loads(request.body)
        except ValueError as error:
            return json_response(_error(None, PARSE_ERROR, f"parse error: {error}"), 400)
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return json_response(_error(None, INVALID_REQUEST, "expected one JSON-RPC 2.0 message"), 400)
        ident, method = message.get("id"), message.get("method")
        if method == "initialize" and _is_id(ident):
            return self._initialize(ident, message.get("params"))
        refused = self._unknown_session(request)
        if refused is not None:
            return refused
        if "id" not in message or (method is None and ("result" in message or "error" in message)):
            return Response(202)  # a notification, or an answer to something never asked
        if not _is_id(ident) or not isinstance(method, str):
            return json_response(_error(None, INVALID_REQUEST, "id or method is missing or malformed"), 400)
        return json_response(await self._answer(ident, method, message.get("params")))

    def open(self, asked: object = None) -> tuple[str, str]:
        """A new session: its id, and the version of the protocol that it speaks: the one asked for, if it can."""
        session = os.urandom(16).hex()
        self._sessions[session] = None
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return session, str(asked) if asked in VERSIONS else VERSIONS[0]

    def _initialize(self, ident: int | str, params: Any) -> Response:
        session, version = self.open(params.get("protocolVersion") if isinstance(params, dict) else None)
        result = {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self._service.name, "version": self._service.env.version},
        }
        return json_response(_result(ident, result), headers={"Mcp-Session-Id": session})

    def _unknown_session(self, request: Request) -> Response | None:
        session = request.headers.get("mcp-session-id")
        if session is None:
            return json_response(_error(None, INVALID_REQUEST, "Missing session ID"), 400)
        if session not in self._sessions:
            return json_response(_error(None, INVALID_REQUEST, "Session not found"), 404)
        return None

    def _close(self, request: Request) -> Response:
        del self._sessions[request.headers["mcp-session-id"]]
        return Response(200)

    async def _answer(self, ident: int | str, method: str, params: Any) -> dict[str, Any]:
        if not isinstance(params, dict):
            if params is not None:
                return _error(ident, INVALID_PARAMS, "params must be an object")
            params = {}
        if method == "ping":
            return _result(ident, {})
        if method == "tools/list":
            return _result(ident, {"tools": self._service.tools()})
        if method != "tools/call":
            return _error(ident, METHOD_NOT_FOUND, f"method not found: {method[:80]}")
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            return _error(ident, INVALID_PARAMS, "tools/call: name must be a string")
        if not isinstance(arguments, dict):
            if arguments is not None:
                return _error(ident, INVALID_PARAMS, "tools/call: arguments must be an object")
            arguments = {}
        called = await self._service.call_tool(name, arguments)
        result: dict[str, Any] = {"content": [{"type": "text", "text": called.text}], "isError": called.is_error}
        if called.structured is not None:
            result["structuredContent"] = called.structured
        return _result(ident, result)


def _is_id(ident: Any) -> TypeGuard[int | str]:
    return type(ident) in (int, str)


def _result(ident: int | str, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": ident, "result": result}


def _error(ident: int | str | None, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": ident, "error": {"code": code, "message": message}}
