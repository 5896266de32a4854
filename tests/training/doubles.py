"""The trainer side's doubles: a session server that answers on script, and an OpenEnv server that does."""

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

PROMPT = ({"role": "system", "content": "End with end_turn."}, {"role": "user", "content": "Add 2 and 3."})


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {
        "name": name,
        "description": f"The tool {name}.",
        "input_schema": {"type": "object", "properties": properties or {"x": {"type": "integer"}}},
    }


END = tool("end_turn", response={"type": "string"})
TOOLS = [tool("add"), tool("note", text={"type": "string"}), END]


def openai_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]},
        }
        for t in tools
    ]


def metadata(url: str | list[str], **settings: Any) -> dict[str, Any]:
    """A row's metadata for a task of the scripted server, with short deadlines."""
    server: dict[str, Any] = {"url": url} if isinstance(url, str) else {"urls": url}
    server |= {"reset_timeout": 5.0, "call_timeout": 5.0, "model_timeout": 5.0, **settings}
    return {
        "split": "train",
        "index": 3,
        "task_id": "@local/double/three",
        "tools": json.dumps(openai_tools(TOOLS)),
        "server": server,
    }


# -- the session server --------------------------------------------------------------------------------------------


def call(name: Any, arguments: Any = "{}", call_id: Any = "call_0") -> dict[str, Any]:
    text = arguments if isinstance(arguments, str | None) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def message(content: str | None = None, *calls: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls) or None, **extra}


def completion(
    content: str | None = None,
    *calls: dict[str, Any],
    finish: str | None = None,
    tokens: int | None = 100,
    **extra: Any,
) -> dict[str, Any]:
    """A chat completion with one message."""
    choice = {
        "index": 0,
        "message": message(content, *calls, **extra),
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [choice],
        **({} if tokens is None else {"usage": {"total_tokens": tokens}}),
    }


@dataclass(frozen=True)
class Answer:
    """An HTTP answer that is no plain completion."""

    status: int = 200
    body: bytes | dict[str, Any] = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int | None = None
    """Close the connection after so many bytes of the body."""


@dataclass(frozen=True)
class Drop:
    """Take the request, answer nothing and close."""


Scripted = dict[str, Any] | Answer | Drop
Script = Callable[[dict[str, Any], int], Scripted | Awaitable[Scripted]]


class ChatServer:
    """A session server that answers the n-th request with the n-th of its script (the last one for ever), or with
    what its function makes of the request. Every request is recorded, while `recording`."""

    def __init__(self, *script: Scripted, answer: Script | None = None) -> None:
        self.requests: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.recording = True
        self.accept_delay = 0.0
        self._script = list(script)
        self._answer = answer
        self._tasks: set[asyncio.Task[Any]] = set()
        self.base_url = ""

    async def _next(self, request: dict[str, Any], body: bytes) -> Scripted:
        place = len(self.requests)
        if self.recording:
            self.requests.append(request)
            self.bodies.append(body)
        if self._answer is None:
            return self._script[min(place, len(self._script) - 1)]
        answer = self._answer(request, place)
        return await answer if isinstance(answer, Awaitable) else answer

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await asyncio.sleep(self.accept_delay)
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        assert head.startswith("POST ")
        assert head.split(" ")[1].endswith("/v1/chat/completions")
        length = next(
            int(v) for k, _, v in (line.partition(":") for line in head.split("\r\n")) if k.lower() == "content-length"
        )
        body = await reader.readexactly(length)
        answer = await self._next(json.loads(body), body)
        if isinstance(answer, Drop):
            return False
        if isinstance(answer, dict):
            answer = Answer(body=answer)
        await asyncio.sleep(answer.delay)
        content = json.dumps(answer.body).encode() if isinstance(answer.body, dict) else answer.body
        headers = {"Content-Type": "application/json", "Content-Length": str(len(content)), **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} Status", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content[: answer.cut])
        await writer.drain()
        return answer.cut is None

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[ChatServer]:
        server = await asyncio.start_server(self.handle, "127.0.0.1", 0, backlog=2048)
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sessions/{'0f' * 16}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


def histories(chat: ChatServer) -> list[list[dict[str, Any]]]:
    """The messages of each request."""
    return [request["messages"] for request in chat.requests]


# -- the OpenEnv server --------------------------------------------------------------------------------------------


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
