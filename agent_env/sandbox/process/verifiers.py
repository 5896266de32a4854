"""Verifiers: a warm fork server for each Python, a cell for each verification, and the relay that leads to the env."""

from __future__ import annotations

import ast
import asyncio
import functools
import json
import logging
import socket
from typing import Any

from agent_env.sandbox.interface import Limits, Verification, VerifierFailed
from agent_env.sandbox.process.cells import Cell, Cells
from agent_env.sandbox.process.forkserver import ForkServer, ForkServerEnded, passed_sockets
from agent_env.sandbox.process.inside import passing
from agent_env.sandbox.process.layout import Interpreter, verifier_settings
from agent_env.sandbox.process.relay import Connect, Relay
from agent_env.sandbox.process.waiting import finish, readable

__all__ = ["LIBRARIES", "PRELOADED", "Libraries", "Verifiers", "libraries_of"]

Libraries = tuple[str, ...]
"""Names from LIBRARIES, in order."""

PRELOADED = (
    "asyncio", "json", "http.client", "urllib.request", "encodings.idna", "inspect", "random", "re", "math",
    "agent_env.env.client",
)  # fmt: skip
"""What nearly every verifier imports."""

_HTTPX = ("httpx", "httpcore._backends.anyio", "httpcore._backends.auto", "h11", "anyio._backends._asyncio")
LIBRARIES = {
    "httpx": _HTTPX,
    "pydantic": ("pydantic",),
    "mcp": (*_HTTPX, "pydantic", "mcp", "mcp.client.streamable_http"),
    "agentenv_protocol": (*_HTTPX, "pydantic", "agentenv_protocol.client"),
}
"""What a verifier that imports one of these is forked with, as far as its env's Python has it. The others are spared
it: to fork, to fault in and to tear down 20 MiB more takes 1.7 ms of CPU time."""

_MAX_ROWS = 1 << 20
"""Bytes of a verifier's rows."""

_log = logging.getLogger(__name__)


class Verifiers:
    def __init__(self, cells: Cells, preloaded: tuple[str, ...] = PRELOADED) -> None:
        self._cells = cells
        self._preloaded = preloaded
        self._servers: dict[tuple[Interpreter, Libraries], asyncio.Task[ForkServer]] = {}

    def prepare(self, interpreter: Interpreter, libraries: Libraries = ()) -> asyncio.Task[ForkServer]:
        """Its fork server, with these of LIBRARIES, being started if it isn't there. The task is shared: shield it."""
        key = (interpreter, libraries)
        task = self._servers.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().alive)):
            task = asyncio.get_running_loop().create_task(self._start(interpreter, libraries))
            task.add_done_callback(_seen)
            self._servers[key] = task
        return task

    async def run(
        self, interpreter: Interpreter, verification: Verification, limits: Limits, connect: Connect
    ) -> list[dict[str, Any]]:
        """The rows that it returned. Raises VerifierFailed, DeployFailed, ForkServerEnded, OSError."""
        server = await asyncio.shield(self.prepare(interpreter, libraries_of(verification.code)))
        # Without a network namespace, the listener is this machine's, and the one address that it may connect to.
        listener = None if self._cells.tier == "namespaces" else _listening()
        try:
            port = listener.getsockname()[1] if listener else 0
            cell = await self._cells.open(server, "verifier", limits, relay=port)
            try:
                listener = listener or await _passed_listener(cell)
                return await _run(cell, verification, listener, connect)
            finally:
                await finish(cell.kill())
        finally:
            if listener is not None:
                listener.close()

    async def close(self) -> None:
        tasks = list(self._servers.values())
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(server.close() for server in found if isinstance(server, ForkServer)))

    async def _start(self, interpreter: Interpreter, libraries: Libraries) -> ForkServer:
        settings = verifier_settings(interpreter, self._cells.tier, self._cells.sdk)
        server = await ForkServer.start(interpreter.executable, settings)
        try:
            modules = (*self._preloaded, *(module for name in libraries for module in LIBRARIES[name]))
            refused = await server.preload(list(dict.fromkeys(modules)))
        except ForkServerEnded:
            refused = "the fork server was ended"
        except BaseException:
            await finish(server.close())
            raise
        if refused is None:
            return server
        _log.warning("verifiers start cold under %s: %s by a library", interpreter.executable, refused)
        await finish(server.close())
        return await ForkServer.start(interpreter.executable, settings)


@functools.lru_cache(maxsize=256)
def libraries_of(code: str) -> Libraries:
    """Which of LIBRARIES a verifier imports, anywhere in it. None of one that doesn't parse: it will say so itself."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return tuple(sorted(names & LIBRARIES.keys()))


async def _passed_listener(cell: Cell) -> socket.socket:
    await readable(cell.child.channel.fileno())
    message, fds = passing.receive(cell.child.channel)
    if not fds:
        raise VerifierFailed(
            f"no sandbox could be made for the verifier: {cell.child.output.text.strip() or message!r}"
        )
    return passed_sockets(fds)[0]


def _listening() -> socket.socket:
    sock = passing.listening(0)
    sock.setblocking(False)
    return sock


async def _run(
    cell: Cell, verification: Verification, listener: socket.socket, connect: Connect
) -> list[dict[str, Any]]:
    name = verification.filename
    task = {
        "code": verification.code,
        "filename": name,
        "mcp_url": f"http://127.0.0.1:{listener.getsockname()[1]}{verification.mcp_path}",
        "run": dict(verification.run),
    }
    relay = Relay(listener, connect)
    try:
        text = await _exchange(cell, json.dumps(task).encode() + b"\n")
    finally:
        await relay.close()
    if len(text) > _MAX_ROWS:
        raise VerifierFailed(f"{name} returned more than {_MAX_ROWS >> 20} MiB of rows")
    reply = _parse(text)
    if "error" in reply:
        raise VerifierFailed(_with_output(f"{name} raised {reply['error']}", cell))
    rows = reply.get("rows")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        why = cell.why(await cell.child.ended) if not text else "it answered something that isn't rows"
        raise VerifierFailed(_with_output(f"{name} gave no rows: {why}", cell))
    return rows


async def _exchange(cell: Cell, task: bytes) -> bytes:
    """Send the task, read one line; less if the verifier ends before, more than allowed if it doesn't stop."""
    loop = asyncio.get_running_loop()
    text = bytearray()
    try:
        await loop.sock_sendall(cell.child.channel, task)
        while not text.endswith(b"\n") and len(text) <= _MAX_ROWS:
            data = await loop.sock_recv(cell.child.channel, 1 << 16)
            if not data:
                break
            text += data
    except ConnectionError:
        return b""
    return bytes(text)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        reply = json.loads(text)
    except ValueError:
        return {}
    return reply if isinstance(reply, dict) else {}


def _with_output(text: str, cell: Cell) -> str:
    tail = cell.child.output.text.strip()
    return f"{text}\n{tail}" if tail else text


def _seen(task: asyncio.Task[Any]) -> None:
    """Its error is told by whoever asks for the result; if nobody does, it's no news."""
    if not task.cancelled():
        task.exception()
