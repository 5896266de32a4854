"""One verification: a child that runs the verifier, and the relay that leads it to its episode's env."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from agent_env.sandbox.interface import Verification, VerifierFailed
from agent_env.sandbox.process.forkserver import Child

__all__ = ["PRELOADED", "Relay", "run_verifier"]

PRELOADED = (
    "asyncio", "json", "http.client", "urllib.request", "inspect", "random", "re", "math", "agent_env.env.client",
    "httpx", "httpcore._backends.anyio", "httpcore._backends.auto", "h11", "anyio._backends._asyncio", "pydantic",
    "mcp", "mcp.client.streamable_http", "agentenv_protocol.client",
)  # fmt: skip
"""What verifiers import, as far as an env's Python has it."""

_MAX_ROWS = 1 << 20
"""Bytes of a verifier's rows."""
_MAX_CONNECTIONS = 64

Connect = Callable[[], Awaitable[socket.socket]]

_log = logging.getLogger(__name__)


async def run_verifier(
    child: Child, verification: Verification, listener: socket.socket, connect: Connect
) -> list[Any]:
    """The rows. `listener` accepts what the verifier connects to. Raises VerifierFailed."""
    port = listener.getsockname()[1]
    task = {
        "code": verification.code,
        "filename": verification.filename,
        "mcp_url": f"http://127.0.0.1:{port}{verification.mcp_path}",
        "run": dict(verification.run),
    }
    relay = Relay(listener, connect)
    try:
        try:
            await asyncio.get_running_loop().sock_sendall(child.channel, b"!" + json.dumps(task).encode() + b"\n")
            text = await _line(child.channel)
        except ConnectionError:
            text = b""
    finally:
        await relay.close()
    if len(text) > _MAX_ROWS:
        raise VerifierFailed(f"{verification.filename} returned more than {_MAX_ROWS >> 20} MiB of rows")
    try:
        reply = json.loads(text)
        error = reply.get("error")
        rows = reply.get("rows")
    except (ValueError, AttributeError):
        raise VerifierFailed(_with_output(f"{verification.filename} ended without a result", child)) from None
    if error is not None:
        raise VerifierFailed(_with_output(f"{verification.filename} raised {error}", child))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise VerifierFailed(f"{verification.filename} answered something that isn't rows")
    return rows


async def _line(sock: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    text = bytearray()
    while not text.endswith(b"\n") and len(text) <= _MAX_ROWS:
        data = await loop.sock_recv(sock, 1 << 16)
        if not data:
            break
        text += data
    return bytes(text)


def _with_output(text: str, child: Child) -> str:
    tail = child.output.text.strip()
    return f"{text}\n{tail}" if tail else text


class Relay:
    """Joins each connection that `listener` accepts to a new one of the env's."""

    def __init__(self, listener: socket.socket, connect: Connect) -> None:
        self._listener = listener
        self._connect = connect
        self._joined: set[asyncio.Task[None]] = set()
        self._task = asyncio.get_running_loop().create_task(self._accept())

    async def close(self) -> None:
        self._task.cancel()
        for task in self._joined:
            task.cancel()
        await asyncio.gather(self._task, *self._joined, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            sock, _ = await loop.sock_accept(self._listener)
            if len(self._joined) >= _MAX_CONNECTIONS:
                sock.close()
                continue
            task = loop.create_task(self._join(sock))
            self._joined.add(task)
            task.add_done_callback(self._joined.discard)

    async def _join(self, one: socket.socket) -> None:
        with one:
            try:
                other = await self._connect()
            except Exception as error:  # an env that has ended: the verifier finds its connection closed
                _log.debug("a verifier's connection finds no env: %s", error)
                return
            with other:
                ways = [asyncio.ensure_future(_pump(one, other)), asyncio.ensure_future(_pump(other, one))]
                try:
                    await asyncio.gather(*ways)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(source, 1 << 16):
            await loop.sock_sendall(target, data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
