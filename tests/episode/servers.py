"""Servers in this process, at the other end of a socket pair: one that plays a script, and an MCP server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from agent_env.episode.http import HttpClient
from agent_env.episode.mcp import McpClient

from .doubles import Script

Answer = Callable[[dict[str, Any]], Any]
"""From a request to a reply's bytes, or to what its result is."""


class Server:
    """Plays `script` on every connection."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def connect(self) -> socket.socket:
        self.connections += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.tasks.append(asyncio.create_task(self._play(theirs)))
        return ours

    async def _play(self, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        try:
            await self.script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def request_read(reader: asyncio.StreamReader) -> bytes:
    """One request: its head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return head + await reader.readexactly(length)


class Peer:
    """An MCP server in this process. `answers`: by method, what its result is, or the whole HTTP answer as bytes."""

    def __init__(self, answers: dict[str, Answer] | None = None, sse: bool = False, session: str | None = "s1") -> None:
        self.answers = answers or {}
        self.sse = sse
        self.session = session
        self.heads: list[str] = []
        self.messages: list[dict[str, Any]] = []
        self.server = Server(self.serve)

    def client(self, **options: Any) -> McpClient:
        return McpClient(HttpClient(self.server.connect), **options)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _, body = (await request_read(reader)).partition(b"\r\n\r\n")
            if head.startswith(b"GET "):  # it has no card
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                continue
            message = json.loads(body)
            self.heads.append(head.decode().lower())
            self.messages.append(message)
            writer.write(self._answer(message))
            await writer.drain()

    def _answer(self, message: dict[str, Any]) -> bytes:
        method = message["method"]
        if method in self.answers:
            result = self.answers[method](message)
            if isinstance(result, bytes):
                return result
        elif method == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
        elif "id" not in message:
            return b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
        else:
            result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        more = f"mcp-session-id: {self.session}\r\n" if self.session and method == "initialize" else ""
        return event_stream(reply, more=more) if self.sse else json_answer(reply, more=more)


def json_answer(value: Any, status: str = "200 OK", more: str = "") -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def event_stream(*values: Any, more: str = "") -> bytes:
    body = b"".join(b"event: message\r\ndata: " + json.dumps(value).encode() + b"\r\n\r\n" for value in values)
    return raw_stream(body, more)


def raw_stream(body: bytes, more: str = "") -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n{more}Transfer-Encoding: chunked\r\n\r\n"
    )
    return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def reply(result: str) -> Answer:
    """A JSON reply whose result is this JSON text, as it is."""
    return lambda message: json_answer(b'{"jsonrpc": "2.0", "id": %d, "result": %b}' % (message["id"], result.encode()))
