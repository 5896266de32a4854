"""The Model Context Protocol over streamable HTTP (revision 2025-06-18), as much as a player of an env needs:
initialize, tools/list, tools/call. Replies come as JSON or as an event stream; what a server says in between
(notifications, pings, requests of its own) is skipped, since we declare no capability to answer.

Raises, besides what the HTTP client does: `RpcError`, the server's own refusal; `BadReply`, what isn't MCP;
`UnreadableReply`, MCP whose values can't be passed on (a tool's data can bring that about).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agent_env import __version__
from agent_env.episode.http import BadReply, HttpClient, PeerError, Response
from agent_env.episode.jsontext import JsonSyntaxError, JsonValueError, decode, encode
from agent_env.episode.sse import SseDecoder

__all__ = [
    "INVALID_PARAMS",
    "PARSE_ERROR",
    "CallResult",
    "McpClient",
    "McpTool",
    "OpenSession",
    "RpcError",
    "UnreadableReply",
]

PROTOCOL_VERSION = "2025-06-18"
PARSE_ERROR = -32700
INVALID_PARAMS = -32602
MAX_PAGES = 100
MAX_TOOLS = 2_000
MAX_LINES = 100_000
"""Of one event stream, the server's own chatter with them."""
MAX_HEADER = 1_024


class RpcError(Exception):
    """The server answered with a JSON-RPC error; str() is its message."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class UnreadableReply(PeerError):
    """The reply is there, but holds what can't be passed on; str() says what."""


@dataclass(frozen=True, slots=True)
class McpTool:
    name: str
    description: str
    input_schema: Mapping[str, Any]
    meta: Mapping[str, Any]
    """`_meta`; empty if there is none."""

    @classmethod
    def parse(cls, entry: Any) -> McpTool:
        """An entry of tools/list. Raises BadReply."""
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise BadReply("the env's tools/list has a tool without a name")
        name, schema = entry["name"], entry.get("inputSchema")
        description, meta = entry.get("description"), entry.get("_meta")
        if schema is not None and not isinstance(schema, dict):
            raise BadReply(f"the env's tool {name!r} has an inputSchema that is no object")
        return cls(
            name=name,
            description=description if isinstance(description, str) else "",
            input_schema=schema if schema else {"type": "object", "properties": {}},
            meta=meta if isinstance(meta, dict) else {},
        )


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that needs no initialize."""

    headers: tuple[tuple[str, str], ...]
    """To be sent with every request."""
    tools: tuple[McpTool, ...] | None = None
    """All there are, if they are known, and stay what they are."""

    @classmethod
    def parse(cls, session: Any, version: Any, tools: tuple[McpTool, ...] | None = None) -> OpenSession:
        """session: its id; None: the server keeps none. Raises BadReply."""
        if not isinstance(version, str):
            raise BadReply("the env's initialize result has no protocolVersion")
        headers = []
        for name, value in (("mcp-session-id", session), ("mcp-protocol-version", version)):
            if value is None:
                continue
            if not isinstance(value, str) or not value.isascii() or not value.isprintable() or len(value) > MAX_HEADER:
                raise BadReply(f"the env's {name} is no header value")
            headers.append((name, value))
        if tools is not None and len(tools) > MAX_TOOLS:
            raise BadReply(f"the env lists more than {MAX_TOOLS} tools")
        return cls(tuple(headers), tools)


@dataclass(frozen=True, slots=True)
class CallResult:
    content: tuple[Mapping[str, Any], ...]
    structured: Any
    is_error: bool
    meta: Mapping[str, Any]

    @property
    def text(self) -> str:
        return "\n".join(block["text"] for block in self.content if block["type"] == "text")


class McpClient:
    """One MCP session; it opens with the first request."""

    def __init__(
        self, http: HttpClient, path: str = "/mcp", role: str | None = None, session: OpenSession | None = None
    ) -> None:
        """path: where the server serves MCP; role: sent as `AgentEnv-Role` with every request; session: to be used
        instead of a new one."""
        self._http = http
        self._path = path
        self._headers = [("Accept", "application/json, text/event-stream")]
        if role:
            self._headers.append(("AgentEnv-Role", role))
        if session:
            self._headers += session.headers
        self._count = 0
        self._session = session

    async def list_tools(self) -> tuple[McpTool, ...]:
        """Every page of the server's tools, in its order."""
        if self._session is not None and self._session.tools is not None:
            return self._session.tools
        tools: dict[str, McpTool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            result = await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            listed = result.get("tools")
            if not isinstance(listed, list):
                raise BadReply("the env's tools/list has no list of tools")
            for entry in listed:
                tool = McpTool.parse(entry)
                tools.setdefault(tool.name, tool)
            if len(tools) > MAX_TOOLS:
                raise BadReply(f"the env lists more than {MAX_TOOLS} tools")
            cursor = result.get("nextCursor")
            if cursor is None:
                return tuple(tools.values())
            if not isinstance(cursor, str):
                raise BadReply("the env's tools/list has a nextCursor that is no string")
        raise BadReply(f"the env's tools/list doesn't end after {MAX_PAGES} pages")

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """Call a tool once. Raises JsonValueError, with nothing sent, for arguments that JSON can't carry."""
        result = await self._request("tools/call", {"name": name, "arguments": arguments})
        return _call_result(result)

    # ---- messages ------------------------------------------------------------------------------------------------

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        body = self._encoded(method, params)  # before the session opens: what can't be sent opens none
        if self._session is None:
            self._session = await self._initialize()
            body = self._encoded(method, params)
        _, result = await self._send(body)
        return result

    async def _initialize(self) -> OpenSession:
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "agent-env", "version": __version__},
        }
        response, result = await self._send(self._encoded("initialize", params))
        session = OpenSession.parse(response.headers.get("mcp-session-id"), result.get("protocolVersion"))
        self._headers += session.headers
        done = await self._post(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        if done.status >= 400:
            raise BadReply(f"the env answered {done.status} to notifications/initialized: {_shown(done.body)}")
        return session

    def _encoded(self, method: str, params: Mapping[str, Any]) -> bytes:
        return encode({"jsonrpc": "2.0", "id": self._count + 1, "method": method, "params": params})

    async def _send(self, body: bytes) -> tuple[Response, dict[str, Any]]:
        self._count += 1
        reply = _Reply(self._count)
        response = await self._post(body, reply)
        return response, reply.result(response)

    async def _post(self, body: bytes, reply: _Reply | None = None) -> Response:
        response = await self._http.request(
            "POST", self._path, body, self._headers, reply.enough if reply is not None else None
        )
        if response.status in (307, 308) and self._session is None:
            # A server mounted at /mcp/ sends /mcp there. Nothing was carried out, so asking again is safe.
            path = urlsplit(response.headers.get("location", "")).path
            if path.rstrip("/") != self._path.rstrip("/") or path == self._path:
                raise BadReply(f"the env redirects {self._path} to {response.headers.get('location')!r}")
            self._path = path
            return await self._post(body, reply)
        return response


class _Reply:
    """Finds the reply to one request in the answer to it, however that comes."""

    def __init__(self, request_id: int) -> None:
        self._id = request_id
        self._events = SseDecoder()
        self._found: dict[str, Any] | None = None

    def enough(self, response: Response) -> bool:
        """An event stream may go on after the reply; nobody waits for that."""
        if self._found is not None:
            return True
        if _content_type(response) != "text/event-stream" or response.status != 200:
            return False
        if any(self._take(_decoded(data)) for data in self._events.feed(response.body)):
            return True
        if self._events.lines > MAX_LINES:
            raise BadReply(f"the env's event stream has {MAX_LINES} lines and no reply")
        return False

    def result(self, response: Response) -> dict[str, Any]:
        if self._found is None and response.body and _content_type(response) == "application/json":
            self._take(_decoded(response.body))
        found = self._found
        if found is None:
            raise BadReply(f"the env answered {response.status} and no JSON-RPC reply: {_shown(response.body)}")
        if "error" in found:
            error = found["error"]
            code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
            if type(code) is not int or not isinstance(message, str):
                raise BadReply("the env's JSON-RPC error has no code and message")
            if response.status != 200 and code not in (PARSE_ERROR, INVALID_PARAMS):
                raise BadReply(f"the env answered {response.status}: {message}")
            raise RpcError(code, message)
        result = found.get("result")
        if not isinstance(result, dict):
            raise BadReply("the env's JSON-RPC reply has no result object")
        return result

    def _take(self, message: Any) -> bool:
        if not isinstance(message, dict):
            raise BadReply("the env sent a message that is no JSON object")
        if "method" in message:
            return False
        given = message.get("id")
        # Servers that could not read the request don't know its id.
        if "error" not in message and (type(given) is not int or given != self._id):
            raise BadReply(f"the env's reply has id {given!r}, not {self._id}")
        self._found = message
        return True


def _decoded(data: bytes | bytearray) -> Any:
    try:
        return decode(data)
    except JsonSyntaxError as error:
        raise BadReply(f"the env's reply is {error}: {_shown(data)}") from None
    except JsonValueError as error:
        raise UnreadableReply(f"the reply holds {error}") from None


def _content_type(response: Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _shown(body: bytes | bytearray) -> str:
    """The beginning of a body, for a message."""
    return repr(bytes(body[:200]).decode("utf-8", "replace"))


def _call_result(result: dict[str, Any]) -> CallResult:
    content = result.get("content", [])
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise BadReply("the env's tool result has a content that is no list of blocks")
    for block in content:
        if not isinstance(block.get("type"), str):
            raise BadReply("the env's tool result has a content block without a type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise BadReply("the env's tool result has a text block without text")
    meta = result.get("_meta")
    return CallResult(
        content=tuple(content),
        structured=result.get("structuredContent"),
        is_error=result.get("isError") is True,
        meta=meta if isinstance(meta, dict) else {},
    )
