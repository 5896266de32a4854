"""Every address that an env serves: its card, the data plane, its extensions, MCP."""

from __future__ import annotations

from typing import Any

from agent_env.env import jsontext
from agent_env.env.http1 import Request, Response, json_response
from agent_env.env.mcp import McpEndpoint
from agent_env.env.service import DATA_OPERATIONS, Refused, Service, log_failure

__all__ = ["App"]

CARD_PATH = "/.well-known/agent-env.json"
EXTENSION_PATH = "/agentenv/ext/"
PART_CONTENT = {"data": dict, "text": str, "file": dict}
FAILED = {"data/reset": "reset_failed", "data/add": "add_failed", "data/get": "get_failed"}


class App:
    """Request in, response out, for one env. Never raises for what a client sends or an env does."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._mcp = McpEndpoint(service)

    @property
    def name(self) -> str:
        """The env's, as its card says it."""
        return self._service.name

    def introduction(self) -> bytes:
        """What a client would ask first, in one piece of JSON: the card, and an MCP session that is open already."""
        session, version = self._mcp.open()
        return jsontext.dumps({"card": self._service.card(), "session": session, "version": version})

    async def handle(self, request: Request) -> Response:
        origin = request.headers.get("origin")
        if origin is not None and not _is_local(origin):  # a web page, by DNS rebinding (MCP: transports, security)
            return json_response({"error": "requests from web pages are refused"}, 403)
        if request.path == "/mcp":
            return await self._mcp.handle(request)
        allowed = "GET" if request.path == CARD_PATH else "POST"
        if request.path not in (CARD_PATH, "/agentenv") and not request.path.startswith(EXTENSION_PATH):
            return json_response({"error": "not found"}, 404)
        if request.method != allowed:
            return json_response({"error": f"use {allowed}"}, 405, {"Allow": allowed})
        if request.path == CARD_PATH:
            return json_response(self._service.card())
        if request.path == "/agentenv":
            return json_response(await self._data(request.body))
        return await self._extension(request.path.removeprefix(EXTENSION_PATH), request.body)

    async def _extension(self, name: str, body: bytes) -> Response:
        if name not in self._service.extensions:
            return json_response({"error": f"no extension operation {name[:80]!r}"}, 404)
        try:
            arguments = jsontext.loads(body) if body.strip() else {}
        except ValueError as error:
            return _extension_error(400, "invalid_params", f"the body is not JSON: {error}", "none")
        if not isinstance(arguments, dict):
            return _extension_error(400, "invalid_params", "the body must be a JSON object", "none")
        try:
            return json_response(await self._service.call_extension(name, arguments))
        except Refused as error:
            return _extension_error(400, "invalid_params", str(error), "none")
        except Exception as error:
            log_failure(f"extension {name}")
            return _extension_error(500, "extension_failed", str(error) or type(error).__name__, "unknown")

    async def _data(self, body: bytes) -> dict[str, Any]:
        """The JSON-RPC reply; the HTTP status is always 200."""
        try:
            message = jsontext.loads(body)
        except ValueError as error:
            return _error(None, -32700, "parse_error", str(error))
        ident = message.get("id") if isinstance(message, dict) else None
        if (
            not isinstance(message, dict)
            or message.get("jsonrpc") != "2.0"
            or not isinstance(message.get("method"), str)
        ):
            return _error(ident, -32600, "invalid_request", "expected one JSON-RPC 2.0 request")
        method = message["method"]
        if method not in DATA_OPERATIONS or method not in self._service.operations:
            return _error(ident, -32601, "method_not_found", f"not served: {method[:80]}")
        params = message.get("params")
        parts = params.get("parts") if isinstance(params, dict) else None
        if method == "data/add" and not _are_parts(parts):
            return _error(ident, -32602, "invalid_request", "params.parts must be a non-empty list of parts")
        try:
            return {"jsonrpc": "2.0", "id": ident, "result": await self._operate(method, parts)}
        except Exception as error:
            log_failure(method)
            return _error(ident, -32000, FAILED[method], str(error) or type(error).__name__)

    async def _operate(self, method: str, parts: Any) -> dict[str, Any]:
        if method == "data/get":
            result = {"parts": await self._service.get_data()}
            jsontext.dumps(result)  # raises here, where it becomes get_failed, for what JSON can't hold
            return result
        if method == "data/add":
            await self._service.add_data(parts)
        else:
            await self._service.reset_data()
        return {}


def _are_parts(parts: Any) -> bool:
    return isinstance(parts, list) and len(parts) > 0 and all(_is_part(part) for part in parts)


def _is_part(part: Any) -> bool:
    kind = part.get("kind") if isinstance(part, dict) else None
    content = PART_CONTENT.get(kind) if isinstance(kind, str) else None
    return content is not None and isinstance(part.get(kind), content)


def _is_local(origin: str) -> bool:
    host = origin.partition("://")[2].rpartition(":")[0] or origin.partition("://")[2]
    return host in ("localhost", "127.0.0.1", "[::1]")


def _extension_error(status: int, code: str, message: str, applied: str) -> Response:
    error = {"code": code, "message": message, "retryable": False, "applied": applied}
    return json_response({"ok": False, "error": error}, status)


def _error(ident: Any, code: int, name: str, detail: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": ident,
        "error": {"code": code, "message": name, "data": {"code": name, "detail": detail}},
    }
