"""The server's side of its janitor: the process that cleans up when the server ends, however it ends.

It runs in a session of its own, `python -m agent_env.sandbox.docker.janitor_process OWNER`, with a pipe as its standard
input.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from agent_env.sandbox.owners import this_owner

__all__ = ["Janitor"]

READY_TIMEOUT = 20.0
END_TIMEOUT = 10.0
ORDERLY = b"."
"""On the pipe: the server has removed everything itself."""


class Janitor:
    """The server's side: `start` it, and `close` it when all is removed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Return once it watches. Raises OSError or TimeoutError."""
        self._process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-P", "-m", "agent_env.sandbox.docker.janitor_process", str(this_owner())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=_environment(),
            cwd="/",
        )
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        stream = self._process.stdout.fileno()
        loop.add_reader(stream, _settle, ready)
        try:
            async with asyncio.timeout(READY_TIMEOUT):
                await ready
        finally:
            loop.remove_reader(stream)
        if not os.read(stream, 16):
            raise OSError("the janitor process did not start; its error is on standard error")

    async def close(self) -> None:
        """Tell it that nothing is left to do, and wait for its end. Idempotent, bounded in time."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(ORDERLY)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it was killed
        try:
            await asyncio.to_thread(process.wait, END_TIMEOUT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            process.stdout.close()


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _environment() -> dict[str, str]:
    """What it needs to find this package and the daemon. None of the server's secrets."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    for name in ("PATH", "HOME", "LANG", "XDG_RUNTIME_DIR"):
        if name in os.environ:
            kept[name] = os.environ[name]
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[3])}
