"""Everything an episode asks of one env's server: its card, its data plane, its extensions, its tools.

Raises, beside `agent_env.sandbox.EnvLost` when the env has ended: PeerError (see http.py), RpcError (see mcp.py),
`EnvRefused`, and JsonValueError for values of ours that JSON can't carry. Deadlines are the caller's.
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent_env.episode.http import BadReply, HttpClient, Response
from agent_env.episode.introduction import Introduction
from agent_env.episode.jsontext import JsonSyntaxError, JsonValueError, decode, encode
from agent_env.episode.mcp import CallResult, McpClient, McpTool
from agent_env.sandbox.interface import EnvInstance

__all__ = ["EnvClient", "EnvRefused"]

CARD_PATH = "/.well-known/agent-env.json"
MCP_PATH = "/mcp"
DATA_PATH = "/agentenv"


class EnvRefused(Exception):
    """The env's server refused an operation of the task's (an extension, its data); str() says which and why."""


class EnvClient:
    """The client of one env instance, for one episode. Nothing is sent before something is asked for."""

    def __init__(self, instance: EnvInstance, role: str | None = None) -> None:
        """role: the agent's role, sent with every MCP request; None: the default one."""
        self._http = HttpClient(instance.connect)
        self._role = role
        introduction = Introduction.parse(instance.introduction)
        self._session_given = introduction.session if introduction else None
        self._card: Mapping[str, Any] | None = introduction.card if introduction else None
        self._card_read = introduction is not None
        self._mcp: McpClient | None = None

    async def card(self) -> Mapping[str, Any] | None:
        """The env's card, read once; None for a server that has none (a plain MCP server)."""
        if not self._card_read:
            response = await self._http.request("GET", CARD_PATH)
            if response.status == 200:
                card = _json(response, "card")
                if not isinstance(card, dict):
                    raise BadReply("the env's card is no JSON object")
                self._card = card
            elif response.status not in (404, 405):
                raise BadReply(f"the env answered {response.status} to GET {CARD_PATH}")
            self._card_read = True
        return self._card

    async def mcp_path(self) -> str:
        """Where the env serves MCP: what its card says, else /mcp."""
        for interface in _objects((await self.card() or {}).get("additionalInterfaces")):
            if interface.get("transport") == "mcp" and interface.get("url"):
                return _path(interface["url"], "MCP interface")
        return MCP_PATH

    def close(self) -> None:
        """Drop the connection. The client stays usable while the env lives."""
        self._http.close()

    # ---- tools ---------------------------------------------------------------------------------------------------

    async def list_tools(self) -> tuple[McpTool, ...]:
        return await (await self._session()).list_tools()

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        return await (await self._session()).call_tool(name, arguments)

    async def _session(self) -> McpClient:
        if self._mcp is None:
            self._mcp = McpClient(self._http, await self.mcp_path(), self._role, self._session_given)
        return self._mcp

    # ---- data plane ----------------------------------------------------------------------------------------------

    async def reset_data(self) -> None:
        await self._data("data/reset", {})

    async def add_files(self, files: Sequence[Path]) -> None:
        """Add files to the env's data, each as a file part with its bytes: the env can't read our disk."""
        await self._data("data/add", {"parts": [_file_part(file) for file in files]})

    async def _data(self, method: str, params: Mapping[str, Any]) -> None:
        card = await self.card()
        if card is None:
            raise EnvRefused(f"{method}: the env has no card, so no data plane")
        path = _path(card.get("url") or DATA_PATH, "data plane")
        body = encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        response = await self._http.request("POST", path, body)
        reply = _json(response, method)
        if not isinstance(reply, dict) or ("result" not in reply and "error" not in reply):
            raise BadReply(f"the env's reply to {method} is no JSON-RPC reply")
        if "error" in reply:
            raise EnvRefused(f"{method}: {_reason(reply['error'])}")

    # ---- extensions ----------------------------------------------------------------------------------------------

    async def extension(self, uri: str) -> Mapping[str, Any] | None:
        """The card's entry for an extension; None if the card, or the extension on it, is missing."""
        capabilities = (await self.card() or {}).get("capabilities")
        for entry in _objects(capabilities.get("extensions") if isinstance(capabilities, dict) else None):
            if entry.get("uri") == uri:
                return entry
        return None

    async def invoke(self, extension: Mapping[str, Any], args: Mapping[str, Any], method: str | None = None) -> Any:
        """Call a method of an extension on the card (the first one listed, if none is named) and return its JSON.

        Raises EnvRefused with the env's own reason.
        """
        uri = extension.get("uri")
        params = extension.get("params")
        params = params if isinstance(params, dict) else {}
        methods = params.get("methods")
        methods = methods if isinstance(methods, dict) else {}
        name = method or next(iter(methods), None)
        entry = methods.get(name) if name is not None else None
        entry = entry if isinstance(entry, dict) else {}
        endpoint = entry.get("endpoint") or params.get("endpoint") or (name and f"{DATA_PATH}/ext/{name}")
        if not endpoint:
            raise EnvRefused(f"extension {uri}: the env's card lists no method and no endpoint")
        path = _path(endpoint, f"extension {uri}")
        verb = str(entry.get("method") or "POST").upper()
        if verb == "GET":
            response = await self._http.request("GET", f"{path}?{urlencode(args)}" if args else path)
        else:
            response = await self._http.request(verb, path, encode(args))
        if not 200 <= response.status < 300:
            raise EnvRefused(f"extension {uri}: the env answered {response.status}: {_error_text(response)}")
        return _json(response, f"extension {uri}") if response.body else None


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list of the card's, which may be null, absent or nonsense."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _path(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.startswith("/") or not value.isascii() or not value.isprintable():
        raise BadReply(f"the env's card gives no path for its {what}: {value!r}")
    if " " in value:
        raise BadReply(f"the env's card gives a path with a blank for its {what}: {value!r}")
    return value


def _json(response: Response, what: str) -> Any:
    try:
        return decode(response.body)
    except (JsonSyntaxError, JsonValueError) as error:
        raise BadReply(f"the env's {what} can't be read ({response.status}): {error}") from None


def _reason(error: Any) -> str:
    """A JSON-RPC error of the data plane in words: `add_failed: no such table`."""
    if not isinstance(error, dict):
        return repr(error)
    data = error.get("data")
    parts = [error.get("message")]
    if isinstance(data, dict):
        parts += [data.get("code"), data.get("message"), data.get("detail")]
    return ": ".join(str(part) for part in dict.fromkeys(parts) if part)


def _error_text(response: Response) -> str:
    try:
        value = decode(response.body)
    except ValueError:
        value = None
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and error.get("message"):
        return str(error["message"])
    return bytes(response.body[:500]).decode("utf-8", "replace")


def _file_part(file: Path) -> dict[str, Any]:
    mime_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    content = base64.b64encode(file.read_bytes()).decode("ascii")
    return {"kind": "file", "file": {"bytes": content, "mimeType": mime_type, "name": file.name}}
