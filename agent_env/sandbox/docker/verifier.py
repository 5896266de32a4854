"""Verifiers: each runs once, in a container of its own, under the Python of its env's image.

A verifier's container has no network. Inside it 127.0.0.1:18765 leads through our socket to the one env that its
episode has, so `mcp_url` is what it would be beside the env. It is started before it is needed, without any code; the
code comes with the task.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.docker.container import Container
from agent_env.sandbox.docker.listener import Listener
from agent_env.sandbox.interface import SandboxError, Verification, VerifierFailed

__all__ = ["DockerVerifier", "VerifierLine"]

Connect = Callable[[], Awaitable[socket.socket]]

UP_TIMEOUT = 60.0
CONNECTIONS_AT_ONCE = 64
LONGEST_ANSWER = 16 * 1024 * 1024
CHUNK = 65536
OUTPUT_WAIT = 1.0
"""Seconds for what a verifier that failed has printed to come: it takes another way than its answer."""


class VerifierLine:
    """The host's end of a verifier's container: one connection for the task, and one for each connection to the env."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        self._task: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._connect: Connect | None = None
        self._relays: set[asyncio.Task[None]] = set()
        self._listener = Listener(folder, self._greeted)

    async def up(self) -> None:
        """Return once the container waits for its task."""
        await asyncio.shield(self._task)

    async def ask(self, task: dict[str, Any], connect: Connect) -> dict[str, Any]:
        """Raises OSError if the container ends before it has answered, ValueError for an answer that is no answer."""
        loop = asyncio.get_running_loop()
        self._connect = connect
        channel = self._task.result()
        await loop.sock_sendall(channel, json.dumps(task).encode() + b"\n")
        answer = bytearray()
        while not answer.endswith(b"\n"):
            data = await loop.sock_recv(channel, CHUNK)
            if not data:
                raise ConnectionError("it ended without an answer")
            answer += data
            if len(answer) > LONGEST_ANSWER:
                raise ValueError(f"its rows are longer than {LONGEST_ANSWER // 2**20} MiB")
        found = json.loads(answer)
        if not isinstance(found, dict):
            raise ValueError("its answer is no JSON object")
        return found

    def close(self) -> None:
        self._listener.close()
        for relay in self._relays:
            relay.cancel()
        if self._task.done() and not self._task.cancelled():
            self._task.result().close()
        self._task.cancel()

    def _greeted(self, greeting: str, connection: socket.socket) -> bool:
        if greeting == "verify" and not self._task.done():
            self._task.set_result(connection)
            return True
        if greeting == "http" and self._connect is not None and len(self._relays) < CONNECTIONS_AT_ONCE:
            relay = asyncio.create_task(_relay(connection, self._connect))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)
            return True
        return False


class DockerVerifier:
    """A started container that waits for a verifier. Kept by a `Shelf`; `kill` it in a `finally`."""

    def __init__(self, env: EnvSpec, container: Container, line: VerifierLine) -> None:
        self._env = env
        self._container = container
        self._line = line
        self._killing: asyncio.Task[None] | None = None

    async def up(self) -> None:
        """Raises VerifierFailed if it ends or takes longer than 60 s."""
        waiting = asyncio.create_task(self._line.up())
        ended = asyncio.create_task(self._container.exited())
        try:
            await asyncio.wait([waiting, ended], timeout=UP_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                why = ended.result() if ended.done() else f"it was not up within {UP_TIMEOUT:g} s"
                raise VerifierFailed(f"{self._told()} can't be started: {why}{self._printed()}")
        finally:
            waiting.cancel()
            ended.cancel()

    async def verify(self, verification: Verification, connect: Connect) -> list[dict[str, Any]]:
        """Raises VerifierFailed, with the end of what the verifier printed."""
        task = {
            "code": verification.code,
            "filename": verification.filename,
            "mcp_url": f"http://127.0.0.1:18765{verification.mcp_path}",
            "run": dict(verification.run),
        }
        what = verification.filename
        try:
            async with asyncio.timeout(verification.timeout):
                answer = await self._line.ask(task, connect)
        except TimeoutError:
            raise VerifierFailed(f"{what} took longer than {verification.timeout:g} s{self._printed()}") from None
        except OSError:
            why = await self._container.exited()
            raise VerifierFailed(f"{what} ended: {why}{self._printed()}") from None
        except ValueError as error:
            raise VerifierFailed(f"{what}: {error}{self._printed()}") from error
        if "error" in answer:
            await asyncio.wait([self._container.output.ended], timeout=OUTPUT_WAIT)
            raise VerifierFailed(f"{what}: {answer['error']}{self._printed()}")
        rows = answer.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise VerifierFailed(f"{what} answered no list of rows{self._printed()}")
        return rows

    async def wait(self) -> str:
        return await self._container.exited()

    async def kill(self) -> None:
        if self._killing is None:
            self._killing = asyncio.create_task(self._kill())
        await asyncio.shield(self._killing)

    async def _kill(self) -> None:
        try:
            await self._container.remove()
        finally:
            self._line.close()

    def _told(self) -> str:
        return f"a verifier's container of env {self._env.name!r} (its image needs python3)"

    def _printed(self) -> str:
        text = self._container.output.text.strip()
        return f"; it printed:\n{text}" if text else ""


async def _relay(inside: socket.socket, connect: Connect) -> None:
    """Copy both ways between a verifier's connection and one to its env, until both sides have ended."""
    env: socket.socket | None = None
    try:
        env = await connect()
        await asyncio.gather(_copy(inside, env), _copy(env, inside))
    except (OSError, SandboxError):
        pass  # the verifier sees its connection end
    finally:
        inside.close()
        if env is not None:
            env.close()


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, CHUNK):
        await loop.sock_sendall(target, data)
    target.shutdown(socket.SHUT_WR)
