"""Env hosts that can be killed and brought back, and rollouts that play on them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx

from agent_env.loopback import serving
from agent_env.training.miles import agent
from agent_env.training.policies import POLICIES
from agent_env.training.rehearsal import Group, Hooks, Rehearsal
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine

__all__ = ["GRIDSIM", "ROOT", "Host", "play", "write_rows"]

ROOT = Path(__file__).parents[2]
GRIDSIM = ROOT / "bundles" / "gridsim-v1"
HOOKS = Hooks(run=agent.run, reward=agent.reward, keep=agent.keep_scored_groups)
START_SECONDS = 60


class Host:
    """`agent-env serve` of a bundle as a process, always on the same port. Use as an async context manager."""

    def __init__(self, *, bundle: Path = GRIDSIM, capacity: int = 8, token: str | None = None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._token = token
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(sys.executable, "-m", "agent_env.cli", "serve", str(bundle)),
            *("--port", str(self.port), "--max-concurrent-envs", str(capacity), "--log-level", "error"),
            *(("--token-var", "HOST_TOKEN") if token else ()),
        ]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait, 60)

    async def start(self) -> None:
        """Returns when it answers."""
        environ = {**os.environ, "HOST_TOKEN": self._token or ""}
        self._process = subprocess.Popen(  # noqa: ASYNC220
            self._command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL
        )
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    await self.status()
                    return
                except httpx.HTTPError:
                    assert self._process.poll() is None, "the server didn't start"
                    await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """As a host dies: at once, with all that ran there."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._process.wait, 30)
        self._process = None

    async def status(self) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self._token}"} if self._token else {}
        async with httpx.AsyncClient(trust_env=False, timeout=20, headers=headers) as client:
            reply = await client.get(f"{self.url}/status")
            assert reply.status_code == 200, reply.text
            found: dict[str, Any] = reply.json()
            return found

    async def until_thinking(self, count: int) -> None:
        """Returns when the models of so many of its episodes think: what then dies has to be replayed."""
        async with asyncio.timeout(START_SECONDS):
            while sum(episode["phase"] == "idle" for episode in (await self.status())["episodes"]) < count:
                await asyncio.sleep(0.02)


def write_rows(urls: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_env.training.miles", urls, str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


async def play(
    rows: Sequence[dict[str, Any]], *, concurrency: int, group_size: int = 8, think: float = 0.0
) -> list[Group]:
    """Play rows with the greedy policy, each `group_size` times. think: seconds that a turn of the model takes."""
    app = build_session_app({"policy": ScriptedEngine(POLICIES["greedy"], seconds=think)}, strict=True)
    async with (
        serving(app) as session_url,
        Rehearsal(HOOKS, session_url, concurrency=concurrency, group_size=group_size) as rehearsal,
    ):
        return await rehearsal.play(rows)
