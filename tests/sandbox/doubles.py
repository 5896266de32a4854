"""Envs that tests deploy, a client that plays them, and a look at which processes are left."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import socket
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import psutil

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import EnvInstance

PROBE = """
import io, contextlib, json, os, random, sys
from agent_env.env import Env, serve, tool

class Probe(Env):
    \"\"\"Runs code, for tests that look at the sandbox from inside.\"\"\"

    def __init__(self) -> None:
        self.scope = {}

    @tool
    def run(self, code: str) -> str:
        \"\"\"Run code; what it leaves in `value`, as JSON.\"\"\"
        self.scope["value"] = None
        exec(code, self.scope)
        return json.dumps(self.scope["value"])

if __name__ == "__main__":
    serve(Probe)
"""


def write_env(folder: Path, source: str, *, name: str = "probe", **fields: Any) -> EnvSpec:
    """An env whose server.py is `source`."""
    folder.mkdir(parents=True, exist_ok=True)
    text = textwrap.dedent(source)
    (folder / "server.py").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return EnvSpec(name=name, folder=folder.resolve(), digest=digest, **fields)


class CallFailed(Exception):
    """The tool answered with an error."""


async def exchange(sock: socket.socket, request: bytes, seconds: float = 20.0) -> bytes:
    """Send, and read one answer: to its length if it says so, else to the end of the connection."""
    loop = asyncio.get_running_loop()
    with sock:
        async with asyncio.timeout(seconds):
            await loop.sock_sendall(sock, request)
            answer = b""
            while not _whole(answer) and (data := await loop.sock_recv(sock, 1 << 16)):
                answer += data
            return answer


def _whole(answer: bytes) -> bool:
    head, separator, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(separator and length and len(body) >= int(length[1]))


async def post(connect: Callable[[], Awaitable[socket.socket]], message: dict[str, Any], session: str) -> bytes:
    body = json.dumps(message).encode()
    lines = [
        "POST /mcp HTTP/1.1",
        "Host: 127.0.0.1:18765",
        "Connection: close",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {len(body)}",
        *([f"Mcp-Session-Id: {session}"] if session else []),
    ]
    return await exchange(await connect(), "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


async def call(env: EnvInstance, tool: str, **arguments: Any) -> str:
    """One tool call in a session of its own. Raises CallFailed, EnvLost."""
    opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    head = await post(env.connect, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}, "")
    lines = head.decode().split("\r\n")
    session = next(line.split(": ", 1)[1] for line in lines if line.lower().startswith("mcp-session-id"))
    await post(env.connect, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
    params = {"name": tool, "arguments": arguments}
    answer = await post(env.connect, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)
    start = answer.index(b'{"', answer.index(b"\r\n\r\n"))
    result = json.JSONDecoder().raw_decode(answer[start:].decode())[0]["result"]
    text = "".join(part["text"] for part in result["content"])
    if result.get("isError"):
        raise CallFailed(text)
    return text


async def run(env: EnvInstance, code: str) -> Any:
    """Run code in a probe env: what it leaves in `value`."""
    return json.loads(await call(env, "run", code=textwrap.dedent(code)))


Processes = dict[int, tuple[int, float]]
"""pid -> inode of its PID namespace, and when it was seen (wall clock)."""


def descendants(pid: int | None = None) -> Processes:
    """Living processes below one (default: this)."""
    found, now = {}, time.time()
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = os.stat(f"/proc/{process.pid}/ns/pid").st_ino, now
        except (psutil.NoSuchProcess, OSError):
            continue
    return found


def left_of(before: Processes) -> set[int]:
    """Which of these processes, or of others in their private PID namespaces, are still alive, by pid.

    Those that began after the look aren't theirs: pids, and numbers of namespaces, are soon used again.
    """
    spaces = {space for space, _ in before.values()} - {os.stat("/proc/self/ns/pid").st_ino}
    seen = max((at for _, at in before.values()), default=0.0)
    alive = set()
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.create_time() > seen:
                continue
            inside = os.stat(f"/proc/{process.pid}/ns/pid").st_ino in spaces
        except (psutil.NoSuchProcess, OSError):
            continue
        if inside or process.pid in before:
            alive.add(process.pid)
    return alive


async def gone(before: Processes, seconds: float = 2.0) -> set[int]:
    """Wait until none of them is left; those that are after `seconds`."""
    until = time.monotonic() + seconds
    while (left := left_of(before)) and time.monotonic() < until:
        await asyncio.sleep(0.02)
    return left


def exists(path: str) -> bool:
    return os.path.lexists(path)


def open_files() -> set[str]:
    return {f"{fd} {target}" for fd, target in _targets(os.listdir("/proc/self/fd"))}


def _targets(fds: Iterable[str]) -> Iterable[tuple[str, str]]:
    for fd in fds:
        try:
            yield fd, os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
