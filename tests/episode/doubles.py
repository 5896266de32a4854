"""Stand-ins below an episode: a sandbox whose envs live in this process and are reached through socket pairs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_env.bundle import load_bundle
from agent_env.bundle.model import Artifact, Bundle, EnvSpec, Task, Turn
from agent_env.bundle.steps import STEP_TYPES, BaseStep, DeployAgent, DeployEnv, PromptAgent
from agent_env.env import Env, ToolError, extension, tool
from agent_env.env.app import App
from agent_env.env.connection import Connection
from agent_env.env.reactor import Reactor
from agent_env.env.service import Service
from agent_env.episode.types import Event
from agent_env.sandbox.interface import (
    DeployFailed,
    EnvInstance,
    EnvLost,
    Sandbox,
    Tier,
    Verification,
    VerifierFailed,
)

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection, however badly."""
Verify = Callable[[EnvInstance, Verification], Awaitable[Any]]


class Counter(Env):
    """Counts up to a goal."""

    name = "counter"

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[dict[str, Any]] = []
        self.parts: list[dict[str, Any]] = []
        self.resets = 0

    @tool
    def add(self, amount: int) -> str:
        """Add to the counter."""
        self.count += amount
        return f"the counter is at {self.count}"

    @tool
    def take(self, value: Any) -> str:
        """Take anything."""
        self.seen.append(value)
        return "taken"

    @tool
    def fail(self, message: str = "") -> str:
        """Fail as told."""
        raise ToolError(message)

    @tool
    async def wait(self, seconds: float) -> str:
        """Answer late."""
        await asyncio.sleep(seconds)
        return "waited"

    @tool(hidden=True)
    def peek(self) -> str:
        """See the counter."""
        return str(self.count)

    @extension("urn:test:start-at/v1")
    def start_at(self, count: int) -> None:
        if count < 0:
            raise ToolError("count must not be negative")
        self.count = count

    def reset_data(self) -> None:
        self.resets += 1
        self.count = 0

    def add_data(self, parts: list[dict[str, Any]]) -> None:
        self.parts += parts

    def get_data(self) -> dict[str, Any]:
        return {"count": self.count}


class FakeInstance(EnvInstance):
    """One env in this process. `serves`: an Env, or a script that plays the server."""

    def __init__(self, env: EnvSpec, number: int, serves: Env | Script) -> None:
        self.env = env
        self.id = f"{env.name}-{number}"
        self.serves = serves
        self.connections = 0
        self.killed = 0
        self.printed = ""
        self._app = App(Service(serves)) if isinstance(serves, Env) else None
        self._reactor = Reactor()
        self._reactor.attach(asyncio.get_running_loop())
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open: list[Connection | asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> socket.socket:
        if self._ended.done():
            raise EnvLost(f"env {self.env.name!r} has ended")
        self.connections += 1
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
        if not callable(self.serves):
            assert self._app is not None
            self._open.append(Connection(self._reactor, theirs, self._app.handle))
        else:
            task = asyncio.create_task(self._play(self.serves, theirs))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return ours

    async def _play(self, script: Script, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        self._open.append(writer)
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def wait(self) -> str:
        return await asyncio.shield(self._ended)

    @property
    def output(self) -> str:
        return self.printed

    def die(self, reason: str = "exit status 1", printed: str = "") -> None:
        """End by itself."""
        self.printed += printed
        if not self._ended.done():
            self._ended.set_result(reason)
        for connection in self._open:
            connection.close()
        self._reactor.close()

    async def kill(self) -> None:
        self.killed += 1
        self.die("killed")
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class FakeSandbox(Sandbox):
    """Deploys what `serves` makes by env name; verifies with `verifies`."""

    tier = Tier("unconfined", (), ("everything",))

    def __init__(self, serves: Mapping[str, Callable[[], Env | Script]], verifies: Verify | None = None) -> None:
        self.serves = serves
        self.verifies = verifies
        self.instances: list[FakeInstance] = []
        self.deploying = 0
        self.most_deploying = 0
        self.deploy_seconds = 0.0
        self.refuse: str | None = None
        """An env's name that doesn't come up."""

    @property
    def instance(self) -> FakeInstance:
        return self.instances[0]

    async def start(self) -> None: ...

    async def prepare(self, env: EnvSpec) -> None: ...

    async def deploy(self, env: EnvSpec, *, episode_id: str) -> FakeInstance:
        self.deploying += 1
        self.most_deploying = max(self.most_deploying, self.deploying)
        try:
            await asyncio.sleep(self.deploy_seconds)
        finally:
            self.deploying -= 1
        if env.name == self.refuse:
            raise DeployFailed(f"env {env.name!r} ended while starting: exit status 3")
        instance = FakeInstance(env, len(self.instances), self.serves[env.name]())
        self.instances.append(instance)
        return instance

    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        if self.verifies is None:
            raise VerifierFailed("the verifier raised: there is none")
        instance = next(instance for instance in self.instances if instance.connect == connect)
        rows: list[dict[str, Any]] = await self.verifies(instance, verification)
        return rows

    async def close(self) -> None:
        await asyncio.gather(*(instance.kill() for instance in self.instances))


async def count_out_of_ten(instance: EnvInstance, verification: Verification) -> list[dict[str, Any]]:
    """Scores a Counter by how near it is to ten."""
    assert isinstance(instance, FakeInstance)
    assert isinstance(instance.serves, Counter)
    return [{"score": instance.serves.count / 10}]


def step(type: str, id: str, **fields: Any) -> Any:
    """A step, read as a bundle's is."""
    return STEP_TYPES[type].model_validate({"type": type, "id": id, **fields}, strict=False)


DEPLOY = step("deploy_env", "env", env_id="counter")
AGENT = step("deploy_agent", "agent", env_ids=["counter"], system_prompt="You count.")
PROMPT = step("prompt_agent", "ask", prompt="Count to ten.")
VERIFY = step(
    "env_outcome_verifier",
    "check",
    env_id="counter",
    file_artifact_id="check",
    verifier_id="check",
    score_aggregator="weighted_average",
)


def make_task(*steps: BaseStep, env_ids: Sequence[str] | None = None) -> Task:
    """A task of these steps; without any, the one that counts to ten."""
    played: tuple[Any, ...] = steps or (DEPLOY, AGENT, PROMPT, VERIFY)
    agent = next(step for step in played if isinstance(step, DeployAgent))
    turns = tuple(
        Turn(step.id, step.prompt_id, step.prompt or "", step.system_prompt or agent.system_prompt, agent.env_ids)
        for step in played
        if isinstance(step, PromptAgent)
    )
    scores = tuple(step.id for step in played if "verifier" in step.type)
    return Task(
        id="@local/test/count",
        name="count",
        steps=played,
        turns=turns,
        agent_name=agent.agent_name,
        env_ids=tuple(env_ids or (step.env_id for step in played if isinstance(step, DeployEnv))),
        scores=scores,
        reward_step=scores[0] if len(scores) == 1 else None,
    )


def make_bundle(folder: Path, envs: Sequence[str] = ("counter",), files: Mapping[str, str] | None = None) -> Bundle:
    """A bundle with these envs and artifacts: `{"check/verify.py": text}`."""
    texts = {"check/verify.py": "def verify(mcp_url): return []\n", **(files or {})}
    artifacts: dict[str, list[Path]] = {}
    for name, text in texts.items():
        path = folder / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        artifacts.setdefault(name.partition("/")[0], []).append(path)
    return Bundle(
        name="test",
        folder=folder,
        description="",
        fingerprint="0" * 64,
        envs={name: EnvSpec(name=name, folder=folder, digest="0" * 64) for name in envs},
        artifacts={
            name: Artifact(name=name, type="file", folder=paths[0].parent, files=tuple(sorted(paths)))
            for name, paths in artifacts.items()
        },
        splits={},
    )


def write_bundle(folder: Path, files: Mapping[str, str]) -> Bundle:
    """The bundle that these files make in `folder`, for tests with real envs."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load_bundle(folder)


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def data(self, kind: str) -> Mapping[str, Any]:
        return next(event.data for event in self.events if event.kind == kind)
