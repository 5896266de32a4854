"""Wakes an env up as a client would, so that it imports all that it will need. Raw HTTP, the answers hardly read.

What it answers doesn't matter, and it isn't trusted: every exchange is bounded in time and size.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable

from agent_env.sandbox.interface import SandboxError
from agent_env.sandbox.process.layout import PORT

__all__ = ["exercise"]

_SECONDS = 20.0
_MAX_ANSWER = 1 << 20
_INITIALIZE: dict[str, object] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "agent-env", "version": "1"},
}


async def exercise(connect: Callable[[], Awaitable[socket.socket]]) -> None:
    """Its card, its data, and one MCP session: initialize, the list of tools, a call that names no tool.

    connect: gives connections to the env's server. Whatever goes wrong is left to the episodes to find.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            card = await _exchange(await connect(), "GET", "/.well-known/agent-env.json", None, {})
            path = _mcp_path(card)
            reply = await _call(connect, path, {}, "initialize", 1, _INITIALIZE)
            session = re.search(rb"(?im)^mcp-session-id: *([^\r\n]+)", reply)
            headers = {"Mcp-Session-Id": session[1].decode("latin-1")} if session else {}
            await _call(connect, path, headers, "notifications/initialized", None, {})
            await _call(connect, path, headers, "tools/list", 2, {})
            await _call(connect, path, headers, "tools/call", 3, {"name": "no_such_tool", "arguments": {}})
            await _call(connect, "/agentenv", {}, "data/get", 4, {})
    except (OSError, TimeoutError, ValueError, SandboxError):
        return


def _mcp_path(card: bytes) -> str:
    found = re.search(rb'"url": *"(/[^"\s]*)", *"transport": *"mcp"', card)
    return found[1].decode("latin-1") if found else "/mcp"


async def _call(
    connect: Callable[[], Awaitable[socket.socket]],
    path: str,
    headers: dict[str, str],
    method: str,
    number: int | None,
    params: dict[str, object],
) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
    return await _exchange(await connect(), "POST", path, json.dumps(message).encode(), headers)


async def _exchange(sock: socket.socket, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> bytes:
    """The whole answer, head and body, as far as it comes before the connection's end."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{PORT}",  # SDKs that guard against DNS rebinding check it
        "Connection: close",
        "Accept: application/json, text/event-stream",
        "MCP-Protocol-Version: 2025-06-18",
        "Content-Type: application/json",
        f"Content-Length: {len(body or b'')}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    loop = asyncio.get_running_loop()
    with sock:
        await loop.sock_sendall(sock, "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        answer = b""
        while len(answer) < _MAX_ANSWER and (data := await loop.sock_recv(sock, 1 << 16)):
            answer += data
        return answer
