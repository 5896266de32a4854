"""A verifier's child: reads one task from its socket, runs it, answers its rows. The code is in no file and no fork
server: it comes with the task.

Both ways one line of JSON: {"code", "filename", "mcp_url", "run"} in; {"rows"} or {"error"} out.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import linecache
import os
import socket
import sys
import traceback
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Message", "Run", "Turn", "serve"]


@dataclass(frozen=True)
class Message:
    turn: int
    role: str
    text: str


@dataclass(frozen=True)
class Turn:
    number: int
    """From 1."""
    message: Message
    reply: Message | None
    prompt_id: str | None = None
    firings: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Run:
    """What `run=` is: the conversation that is graded. Nothing here fires triggers, so there are no firings."""

    turns: tuple[Turn, ...] = ()

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Run:
        return cls(tuple(_turn(number, turn) for number, turn in enumerate(data.get("turns", ()), 1)))

    def turn(self, number: int) -> Turn:
        if not 1 <= number <= len(self.turns):
            raise LookupError(f"the run has no turn {number}: it has {len(self.turns)}, counted from 1")
        return self.turns[number - 1]

    def firings(self, trigger_id: str | None = None, *, env: str | None = None) -> tuple[Any, ...]:
        return ()

    def firing(self, trigger_id: str, *, env: str | None = None) -> None:
        return None

    def as_of(self, turn: int) -> Run:
        return replace(self, turns=self.turns[:turn])


def _turn(number: int, data: Mapping[str, Any]) -> Turn:
    reply = data.get("reply")
    return Turn(
        number,
        Message(number, "user", data["message"]["text"]),
        None if reply is None else Message(number, "agent", reply["text"]),
        data.get("prompt_id"),
    )


def serve(sock: socket.socket) -> None:
    with sock.makefile("rb") as lines:
        task = json.loads(lines.readline())
    try:
        rows = _run(task)
        reply = json.dumps({"rows": rows}, allow_nan=False)
    except BaseException as error:
        traceback.print_exc()
        reply = json.dumps({"error": _describe(error, task["filename"])})
    sock.sendall(reply.encode() + b"\n")
    os._exit(0)  # at once: there is nothing to tidy up that doesn't end with this process


def _run(task: Mapping[str, Any]) -> Sequence[Any]:
    source, filename = task["code"], task["filename"]
    module = types.ModuleType("verify")
    module.__file__ = filename
    sys.modules["verify"] = module
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), module.__dict__)
    verify = module.__dict__.get("verify")
    if not callable(verify):
        raise TypeError(f"{filename} defines no verify(mcp_url)")
    wanted = {"run": Run.parse(task["run"])} if "run" in inspect.signature(verify).parameters else {}

    rows = verify(task["mcp_url"], **wanted)
    if inspect.isawaitable(rows):
        # Not asyncio.run: what that tidies up afterwards ends with this process.
        rows = asyncio.new_event_loop().run_until_complete(_awaited(rows))
    if not isinstance(rows, (list, tuple)) or not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(f"verify() returned {type(rows).__name__}, not a list of rows (dicts)")
    return [dict(row) for row in rows]


async def _awaited(result: Any) -> Any:
    return await result


def _describe(error: BaseException, filename: str) -> str:
    text = f"{type(error).__name__}: {error}"[:2000]
    own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == filename]
    return f"{text} ({filename}, line {own[-1]})" if own else text
