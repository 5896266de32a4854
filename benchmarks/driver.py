"""Plays episodes on any OpenEnv server: raw WebSockets, so that no client's own cost is measured with the server's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from common import percentile
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["ECHO", "ECHO_SCORED", "GRIDSIM", "HELLO", "Call", "Game", "Report", "ask", "opened", "play", "step"]

REPLY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Game:
    """What an episode is: a reset, these calls, and the end if there is one."""

    calls: tuple[Call, ...]
    end: Call | None
    indices: int = 1
    """So many tasks are played in turn."""


SCHEDULE = [5, *[0] * 17, -5, *[0] * 5]
END = Call("end_turn", {"response": "done"})
GRIDSIM = Game((Call("submit_schedule", {"schedule": SCHEDULE}),) * 2, END, indices=200)
"""Two calls as in the others: the second is answered that one schedule was submitted already."""
ECHO = Game((Call("echo", {"message": "hi"}),) * 2, None)
ECHO_SCORED = Game(ECHO.calls, END)
HELLO = Game((), END)
"""agentenv-framework's Docker-free bundle offers no tool but end_turn."""


@dataclass(slots=True)
class Report:
    seconds: float = 0.0
    ended: Counter[str] = field(default_factory=Counter)
    """Episodes by how they ended: `ok`, or what went wrong."""
    latency: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each `connect`, `reset`, `call`, `end` and `episode`; `first`: from connecting to the first reply of
    a tool."""

    @property
    def rate(self) -> float:
        return self.ended["ok"] / self.seconds

    def ms(self, phase: str, share: float) -> float | None:
        values = self.latency.get(phase)
        return round(percentile(values, share) * 1000, 3) if values else None


async def play(url: str, game: Game, *, sessions: int, episodes: int, think: float = 0.0) -> Report:
    """`sessions` at once play `episodes` in all. think: seconds before each call, as a model would take."""
    report, left = Report(), iter(range(episodes))

    async def worker() -> None:
        for number in left:
            try:
                await _episode(url, game, number, report, think)
                report.ended["ok"] += 1
            except Exception as error:  # counted, and told
                report.ended[f"{type(error).__name__}: {error}"[:200]] += 1

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(sessions)))
    report.seconds = time.perf_counter() - begun
    return report


@contextlib.asynccontextmanager
async def opened(url: str, game: Game, number: int, report: Report) -> AsyncIterator[ClientConnection]:
    """A session with its env deployed. Raises RuntimeError if the server refuses."""
    begun = time.perf_counter()
    address = url.replace("http", "ws", 1) + "/ws"
    async with connect(address, compression=None, proxy=None, open_timeout=60, max_size=None) as socket:
        report.latency["connect"].append(time.perf_counter() - begun)
        task = {"split": "eval", "index": number % game.indices} if game.indices > 1 else {}
        reply = await ask(socket, report, "reset", {"type": "reset", "data": task})
        if reply["data"].get("done"):
            raise RuntimeError(f"reset: {str(reply)[:150]}")
        yield socket


async def _episode(url: str, game: Game, number: int, report: Report, think: float) -> None:
    begun = time.perf_counter()
    async with opened(url, game, number, report) as socket:
        for place, call in enumerate(game.calls):
            await asyncio.sleep(think)
            await ask(socket, report, "call", step(call))
            if place == 0:
                report.latency["first"].append(time.perf_counter() - begun - think)
        if game.end is not None:
            await asyncio.sleep(think)
            reply = await ask(socket, report, "end", step(game.end))
            if not isinstance(reply["data"].get("reward"), int | float):
                raise RuntimeError(f"not scored: {str(reply)[:150]}")
        await socket.send('{"type": "close"}')
    report.latency["episode"].append(time.perf_counter() - begun)


async def ask(socket: ClientConnection, report: Report, phase: str, message: dict[str, Any]) -> dict[str, Any]:
    """Send a frame and return the reply, timed. Raises RuntimeError for an error frame."""
    begun = time.perf_counter()
    await socket.send(json.dumps(message))
    reply: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), REPLY_SECONDS))
    report.latency[phase].append(time.perf_counter() - begun)
    if reply["type"] == "error":
        raise RuntimeError(f"{phase}: {reply['data'].get('code')}: {reply['data'].get('message')}")
    return reply


def step(call: Call) -> dict[str, Any]:
    return {"type": "step", "data": {"type": "call_tool", "tool_name": call.tool, "arguments": call.arguments}}
