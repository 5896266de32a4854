"""A server without envs: episodes that do as their tools' names say, and a sandbox that holds nothing."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI
from websockets.asyncio.client import ClientConnection, connect

from agent_env.bundle.model import EnvSpec, Task, Turn
from agent_env.episode import END_TURN_TOOL, EpisodeFailed, ErrorKind, Failure, Outcome, Prompt, Tool, ToolResult
from agent_env.openenv.admission import Admission
from agent_env.openenv.app import assemble
from agent_env.openenv.catalog import Catalog, Place
from agent_env.sandbox.interface import Sandbox, Tier

NUMBER = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
TOOLS = tuple(
    Tool(name, f"{name}.", NUMBER) for name in ("add", "sleep", "fail", "size", "nan", "lose", "bug", "surrogate")
)


def text(value: str) -> ToolResult:
    return ToolResult(content=({"type": "text", "text": value},))


@dataclass
class World:
    """What the fake episodes did."""

    live: int = 0
    peak: int = 0
    started: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    deploy_seconds: float = 0.0
    close_seconds: float = 0.0
    score_seconds: float = 0.0
    fail_deploys: bool = False
    unscored: bool = False
    calling: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while a call of `sleep`, or the scoring, runs."""
    deploying: asyncio.Event = field(default_factory=asyncio.Event)
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last live env is gone."""

    def change(self, live: int) -> None:
        self.live += live
        self.peak = max(self.peak, self.live)
        if self.live:
            self.empty.clear()
        else:
            self.empty.set()

    async def gone(self) -> None:
        """Await the end of every env."""
        await asyncio.wait_for(self.empty.wait(), 5)

    def make(self, place: Place, episode_id: str) -> FakeEpisode:
        return FakeEpisode(self, place, episode_id)


class FakeEpisode:
    """Adds numbers. Its score is the sum over the number of the task."""

    def __init__(self, world: World, place: Place, episode_id: str) -> None:
        self.world = world
        self.place = place
        self.id = episode_id
        self.turn = 0
        self.sum = 0.0
        self.up = False

    async def start(self) -> Prompt:
        self.up = True
        self.world.change(+1)
        self.world.started.append(self.id)
        self.world.deploying.set()
        try:
            await asyncio.sleep(self.world.deploy_seconds)
        except asyncio.CancelledError:
            self.world.cancelled.append(f"deploy {self.id}")
            raise
        if self.world.fail_deploys:
            raise EpisodeFailed(Failure.DEPLOY_FAILED, "env 'adder': exit status 1")
        return self.prompt()

    def prompt(self) -> Prompt:
        turn = self.place.task.turns[self.turn]
        return Prompt(self.turn, turn.prompt, turn.system_prompt)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (*TOOLS, END_TURN_TOOL)

    async def call(self, name: str, arguments: Mapping[str, Any], timeout: float | None = None) -> ToolResult:
        if name not in {tool.name for tool in TOOLS}:
            return ToolResult(error=ErrorKind.UNKNOWN_TOOL, message=f"there is no tool {name!r}")
        n = arguments.get("n")
        if not isinstance(n, int | float):
            return ToolResult(error=ErrorKind.INVALID_ARGUMENTS, message="n is missing")
        match name:
            case "sleep":
                self.world.calling.set()
                try:
                    async with asyncio.timeout(timeout):
                        await asyncio.sleep(n)
                except TimeoutError:
                    return ToolResult(error=ErrorKind.TIMEOUT, message=f"sleep did not answer within {timeout:g} s")
                except asyncio.CancelledError:
                    self.world.cancelled.append(f"call {self.id}")
                    raise
                finally:
                    self.world.calling.clear()
            case "fail":
                return ToolResult(error=ErrorKind.EXECUTION, message="it failed")
            case "size":
                return text("x" * int(n))
            case "nan":
                return ToolResult(structured={"n": float("nan")})
            case "surrogate":
                return text("a\ud800b")
            case "lose":
                return ToolResult(error=ErrorKind.TRANSPORT, message="env 'adder' ended: exit status 9")
            case "bug":
                raise ZeroDivisionError("a bug")
        self.sum += n
        return text(str(self.sum))

    async def end_turn(self, response: str) -> Prompt | Outcome:
        if self.turn + 1 < len(self.place.task.turns):
            self.turn += 1
            return self.prompt()
        self.world.calling.set()
        await asyncio.sleep(self.world.score_seconds)
        self.world.calling.clear()
        if self.world.unscored:
            raise EpisodeFailed(Failure.UNSCORED, "the verifier raised KeyError")
        reward = self.sum / (self.place.index + 1)
        return Outcome(reward, {"sum": reward})

    async def close(self) -> None:
        if self.up:
            self.up = False
            await asyncio.sleep(self.world.close_seconds)
            self.world.change(-1)
            self.world.closed.append(self.id)


class NoSandbox(Sandbox):
    """Starts and closes."""

    tier = Tier("namespaces", ("nothing",), ())

    def __init__(self) -> None:
        self.started = self.closed = False

    async def start(self) -> None:
        self.started = True

    async def prepare(self, env: EnvSpec) -> None: ...

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> Any:
        raise NotImplementedError

    async def verify(self, *arguments: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed = True


def task(name: str, turns: int = 1) -> Task:
    return Task(
        id=f"@local/adding/{name}",
        name=name,
        steps=(),
        turns=tuple(Turn(f"prompt{n}", None, f"{name}: turn {n}", "You add.", ("adder",)) for n in range(turns)),
        agent_name="agent",
        env_ids=("adder",),
        scores=("sum",),
        toolset="t",
    )


def catalog() -> Catalog:
    """`all`: one, two, three, talk (two turns); `train`: two, three; `test`: one."""
    one, two, three, talk = task("one"), task("two"), task("three"), task("talk", turns=2)
    splits = {"all": [one, two, three, talk], "train": [two, three], "test": [one]}
    return Catalog(name="Adding", description="Adds numbers.", fingerprint="f" * 64, splits=splits)


def adding_app(
    world: World, sandbox: Sandbox | None = None, *, max_concurrent_envs: int = 8, **settings: Any
) -> FastAPI:
    return assemble(catalog(), world.make, sandbox or NoSandbox(), Admission(max_concurrent_envs), **settings)


class Server(uvicorn.Server):
    """uvicorn, but it starts to stop when it is told to, and waits for nothing but its requests: it looks whether it
    should every 0.1 s, and sleeps as long in between, which adds up over hundreds of tests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop = asyncio.Event()

    async def main_loop(self) -> None:
        await self.stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks)
        await self.lifespan.shutdown()


@asynccontextmanager
async def serving(app: FastAPI, **config: Any) -> AsyncIterator[str]:
    """The app behind uvicorn, in this event loop: yields its address, host:port."""
    server = Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", **config))
    running = asyncio.create_task(server.serve())
    while not server.started:
        if running.done():
            await running
        await asyncio.sleep(0.005)
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop.set()
        await asyncio.wait_for(running, 30)


def open_ws(address: str, path: str = "/ws", **options: Any) -> connect:
    return connect(f"ws://{address}{path}", proxy=None, max_size=2**27, **options)


async def ask(socket: ClientConnection, kind: str, data: Any = None) -> dict[str, Any]:
    """Send one request and return its reply, {"type", "data"}."""
    frame = {"type": kind} if data is None else {"type": kind, "data": data}
    await socket.send(json.dumps(frame))
    return json.loads(await asyncio.wait_for(socket.recv(), 20))


async def call(socket: ClientConnection, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool; returns the observation frame's data."""
    reply = await ask(socket, "step", {"type": "call_tool", "tool_name": tool, "arguments": arguments})
    assert reply["type"] == "observation", reply
    return reply["data"]
