"""An OpenEnv server of one scripted task."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from tests.training.row import PROMPT, TOOLS


class Fail(Exception):
    """Raised by a scripted tool: an error of a kind (`execution_error`, `timeout`, ...)."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        super().__init__(text)


class Close(Exception):
    """Raised by a scripted tool or reset: close the socket with a code; None cuts the TCP connection."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        self.code = code
        self.reason = reason
        super().__init__(str(code))


class EpisodeFails(Exception):
    """Raised by a scripted tool or reset: the episode fails for a `reason` of the protocol."""

    def __init__(self, reason: str, text: str = "it broke") -> None:
        self.reason = reason
        super().__init__(text)


class Frame(Exception):
    """Raised by a scripted tool or reset: send this instead of an observation."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        super().__init__("frame")


@dataclass
class EnvSession:
    """One session of the scripted server: what a tool may look at and change."""

    number: int
    """Of the sessions, from 0."""
    request: Request
    resets: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    turn: int = 0
    total: int = 0


Tool = Callable[[EnvSession, dict[str, Any]], Any]


def add(session: EnvSession, arguments: dict[str, Any]) -> Any:
    """Adds x to the session's total: state that a replay must build again."""
    session.total += int(arguments.get("x", 0))
    return f"total {session.total}"


def note(session: EnvSession, arguments: dict[str, Any]) -> Any:
    return arguments.get("text", "noted")


class EnvServer:
    """An OpenEnv server of one scripted task: its tools are functions of session and arguments (sync or async).

    `turns`: the prompts after the first; `reward`: what the last end_turn gives, a value or a function of the session.
    """

    def __init__(
        self,
        *,
        tools: dict[str, Tool] | None = None,
        turns: tuple[Any, ...] = (),
        reward: Any = 1.0,
        reset: Callable[[EnvSession, dict[str, Any]], Any] | None = None,
        scores: dict[str, Any] | None = None,
        replayable: bool = True,
        token: str | None = None,
        bundle: str = "",
    ) -> None:
        self.tools: dict[str, Tool] = {"add": add, "note": note, **(tools or {})}
        self.turns = turns
        self.reward = reward
        self.reset = reset
        self.scores = scores
        self.replayable = replayable
        self.token = token
        self.bundle = bundle
        self.sessions: list[EnvSession] = []
        self.handshakes = 0
        self.refuse: Response | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sockets: list[ServerConnection] = []
        self.closed = asyncio.Event()
        """Set when a session has ended."""
        self.live = 0
        self.peak = 0
        self.url = ""

    def check(self, connection: ServerConnection, request: Request) -> Response | None:
        self.handshakes += 1
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return Response(401, "Unauthorized", Headers())
        return self.refuse

    async def handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        session = EnvSession(len(self.sessions), socket.request)
        self.sessions.append(session)
        self._sockets.append(socket)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.live += 1
        self.peak = max(self.peak, self.live)
        try:
            async for text in socket:
                try:
                    reply = await self._reply(session, json.loads(text))
                except Close as close:
                    if close.code is None:
                        socket.transport.abort()
                    else:
                        await socket.close(close.code, close.reason)
                    return
                except Frame as other:
                    reply = other.frame
                await socket.send(reply if isinstance(reply, str) else json.dumps(reply))
        except (ConnectionClosed, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self.live -= 1
            self.closed.set()

    def forget(self) -> None:
        """Drop the record of sessions."""
        self.sessions.clear()
        self._sockets.clear()

    def cut(self) -> None:
        """Reset every connection."""
        for socket in self._sockets:
            socket.transport.abort()

    async def _reply(self, session: EnvSession, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if request["type"] == "reset":
                session.resets.append(request["data"])
                extra = await _result(self.reset(session, request["data"])) if self.reset else None
                about = {
                    "prompt": PROMPT[1]["content"],
                    "system_prompt": PROMPT[0]["content"],
                    "task": {"id": "@local/double/three", "split": "train", "index": 3},
                    "turns": 1 + len(self.turns),
                    "replayable": self.replayable,
                    "bundle": self.bundle,
                    "seconds": {"wait": 0.25, "deploy": 0.0},
                    **(extra or {}),
                }
                return observation(metadata=about)
            if request["type"] == "step" and request["data"]["type"] == "list_tools":
                return observation({"tools": TOOLS})
            if request["type"] == "state":
                return {"type": "state", "data": {"episode_id": session.resets[-1].get("episode_id"), "step_count": 0}}
            return await self._call(session, request["data"]["tool_name"], request["data"]["arguments"])
        except EpisodeFails as failed:
            about = {"status": "error", "reason": failed.reason, "error": str(failed), "task": None}
            return observation(done=True, metadata=about)

    async def _call(self, session: EnvSession, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        session.calls.append((name, arguments))
        try:
            if name in self.tools:
                result = await _result(self.tools[name](session, arguments))
            elif name == "end_turn":
                return await self._end_turn(session)
            else:
                raise Fail("tool_not_found", f"no tool {name} in this turn")
        except Fail as error:
            failed = {"error_type": error.kind, "message": str(error)}
            return observation({"tool_name": name, "result": None, "error": failed})
        return observation({"tool_name": name, "result": result, "error": None})

    async def _end_turn(self, session: EnvSession) -> dict[str, Any]:
        if session.turn < len(self.turns):
            prompt = self.turns[session.turn]
            session.turn += 1
            result = prompt if isinstance(prompt, dict) else {"prompt": prompt, "system_prompt": PROMPT[0]["content"]}
            about = {"turn": session.turn}
            return observation({"tool_name": "end_turn", "result": result, "error": None}, metadata=about)
        reward = await _result(self.reward(session) if callable(self.reward) else self.reward)
        scores = {"verify": reward} if self.scores is None else self.scores
        about = {"scores": scores, "seconds": {"score": 0.0}}
        body = {"tool_name": "end_turn", "result": None, "error": None}
        return observation(body, reward=reward, done=True, metadata=about)

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncIterator[EnvServer]:
        server: Server = await serve(
            self.handle, "127.0.0.1", port, process_request=self.check, max_size=None, compression=None, close_timeout=1
        )
        self.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):  # a scripted tool may hang
                task.cancel()
            await server.wait_closed()


def observation(
    body: dict[str, Any] | None = None,
    *,
    reward: Any = None,
    done: bool = False,
    metadata: dict[str, Any] | None = None,
) -> dict[str, Any]:
    about = metadata or {}
    data = {"observation": {"metadata": about, **(body or {})}, "reward": reward, "done": done, "metadata": about}
    return {"type": "observation", "data": data}


async def _result(value: Any) -> Any:
    return await value if isinstance(value, Awaitable) else value
