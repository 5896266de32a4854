"""Every fault in every phase: the failure contract holds, and no env is left.

The rollouts of one scenario, each held in another phase, meet one fault together. What came of them is the table of
docs/reliability.md, which `test_the_documented_matrix_is_what_happens` compares with it (or writes, with
AGENT_ENV_WRITE_DOCS=1).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent_env.openenv import client
from agent_env.training.miles import agent
from tests.faults.doubles import ROOT, Flow, Proxy, ServerProcess
from tests.training.chat_server import ChatServer, call, completion
from tests.training.row import PROMPT, openai_tools, tool

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]

HOLD_SECONDS = 3.0
TOOLS = openai_tools([tool(name) for name in ("add", "slow_add", "dice", "die", "end_turn")])


def row(url: str, index: int, **settings: Any) -> dict[str, Any]:
    """Metadata of a task of the fragile bundle."""
    server = {"url": url, "reset_timeout": 30.0, "call_timeout": 30.0, "model_timeout": 30.0, **settings}
    return {"split": "all", "index": index, "task_id": f"task {index}", "tools": TOOLS, "server": server}


def ends(response: str) -> dict[str, Any]:
    return completion(None, call("end_turn", {"response": response}))


def adds(x: int) -> dict[str, Any]:
    return completion(None, call("add", {"x": x}))


ORDINARY = [adds(3), ends("3"), adds(2), ends("5")]
SLOW_CALL = [
    adds(3),
    completion(None, call("slow_add", {"x": 0, "seconds": HOLD_SECONDS})),
    ends("3"),
    adds(2),
    ends("5"),
]
NEVER = 99


@dataclass(frozen=True)
class Phase:
    """Where a rollout is when the fault comes."""

    title: str
    task: int = 0
    script: tuple[dict[str, Any], ...] = tuple(ORDINARY)
    hold_at: int = NEVER
    """The chat request that isn't answered before the fault is there, from 0."""
    begun: bool = True
    """Whether the model was asked before, so that a lost env is recovered rather than opened again."""


CONNECT = Phase("connecting", begun=False)
WAITING = Phase("waiting for room", begun=False)
DEPLOYING = Phase("deploying", task=1, begun=False)
PHASES = (
    CONNECT,
    WAITING,
    DEPLOYING,
    Phase("first reply", hold_at=0),
    Phase("in a call", script=tuple(SLOW_CALL)),
    Phase("between calls", hold_at=1),
    Phase("second turn", hold_at=2),
    Phase("scoring", task=2),
)


@dataclass
class Playing:
    """One rollout, with a session server and a proxy of its own."""

    phase: Phase
    proxy: Proxy
    chat: ChatServer
    release: asyncio.Event
    task: asyncio.Task[dict[str, Any]]


@dataclass
class Scenario:
    """Rollouts of one server, one in each phase."""

    server: ServerProcess
    settings: dict[str, Any]
    playing: list[Playing] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def begin(self, phase: Phase) -> Playing:
        release = asyncio.Event()

        async def answer(request: dict[str, Any], place: int) -> dict[str, Any]:
            if place == phase.hold_at:
                await release.wait()
            return phase.script[place]

        proxy, chat = Proxy(self.server.port), ChatServer(answer=answer)
        if phase is CONNECT:
            proxy.begin_with = Flow.HOLD
        await self.stack.enter_async_context(proxy.serve())
        await self.stack.enter_async_context(chat.serve())
        given = row(proxy.url, phase.task, **self.settings)
        task = asyncio.create_task(
            agent.run(base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=given)
        )
        self.playing.append(Playing(phase, proxy, chat, release, task))
        return self.playing[-1]

    async def reach(self) -> None:
        """Bring one rollout into each phase, at the same time."""
        for phase in PHASES[3:]:
            playing = await self.begin(phase)
            if phase.hold_at != NEVER:
                await self.until(lambda p=playing: len(p.chat.requests) > p.phase.hold_at)  # type: ignore[misc]
        await self.begin(DEPLOYING)
        await self.until_status(lambda found: found["live"] == len(PHASES) - 2)
        await self.begin(WAITING)
        await self.begin(CONNECT)
        await self.until_status(
            lambda found: (
                found["waiting"] == 1
                and {"calling", "scoring", "deploying", "idle"} <= {one["phase"] for one in found["episodes"]}
            )
        )

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not true():
                await asyncio.sleep(0.02)

    async def until_status(self, true: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(30):
            while not true(await self.server.status()):
                await asyncio.sleep(0.02)

    async def results(self) -> list[dict[str, Any]]:
        """Let every rollout go on, and its end."""
        for playing in self.playing:
            playing.proxy.begin_with = Flow.PASS
            if playing.phase is CONNECT:
                playing.proxy.set(Flow.PASS)
            playing.release.set()
        return await asyncio.gather(*(playing.task for playing in self.playing))


@asynccontextmanager
async def scenario(**settings: Any) -> AsyncIterator[Scenario]:
    server = ServerProcess(capacity=len(PHASES) - 2)
    async with server.serve():
        made = Scenario(server, settings)
        async with made.stack:
            try:
                await made.reach()
                yield made
            finally:
                for playing in made.playing:
                    playing.task.cancel()
                await asyncio.gather(*(playing.task for playing in made.playing), return_exceptions=True)


@pytest.fixture(autouse=True)
def _quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PING_INTERVAL", 1.0)
    monkeypatch.setattr(client, "PING_TIMEOUT", 1.0)
    monkeypatch.setattr(client, "CLOSE_TIMEOUT", 0.5)


# -- the faults ------------------------------------------------------------------------------------------------------


async def cut(scene: Scenario) -> None:
    for playing in scene.playing:
        playing.proxy.cut()


async def truncate(scene: Scenario) -> None:
    for playing in scene.playing:
        playing.proxy.set(Flow.TRUNCATE)


async def freeze(scene: Scenario) -> None:
    for playing in scene.playing:
        if playing.phase is not CONNECT:
            playing.proxy.set(Flow.HOLD)
        else:
            playing.proxy.cut()


async def kill_envs(scene: Scenario) -> None:
    assert scene.server.kill_envs() >= len(PHASES) - 2


def restart(number: int) -> Callable[[Scenario], Awaitable[None]]:
    async def fault(scene: Scenario) -> None:
        await scene.server.stop(number)
        await scene.server.start()

    return fault


async def gone(scene: Scenario) -> None:
    await scene.server.stop(signal.SIGKILL)


FAULTS: dict[str, Callable[[Scenario], Awaitable[None]]] = {
    "connection reset": cut,
    "answer cut short": truncate,
    "connection half-open": freeze,
    "env killed": kill_envs,
    "server stopped (SIGTERM) and restarted": restart(signal.SIGTERM),
    "server killed (SIGKILL) and restarted": restart(signal.SIGKILL),
    "server gone for good": gone,
}
GONE = "server gone for good"
ENV_FAULT = "env killed"

Matrix = dict[tuple[int, str], list[str]]
_matrix: Matrix = {}
"""What happened, by `recover` and fault, phase by phase; filled by the tests in order."""


def expected(fault: str, phase: Phase, recover: int) -> tuple[str, str, int]:
    """Status, end reason and recoveries by the failure contract."""
    if fault == GONE:
        return "failed", "env_lost" if phase.begun else "deploy_failed", 1 if phase.begun and recover else 0
    if not phase.begun:
        return "scored", "end_turn", 0
    return ("scored", "end_turn", 1) if recover else ("failed", "env_lost", 0)


@pytest.mark.parametrize("recover", [2, 0])
@pytest.mark.parametrize("fault", FAULTS)
async def test_the_contract_holds_in_every_phase(fault: str, recover: int) -> None:
    settings = {"recover": recover} | ({"reset_timeout": 3.0 + HOLD_SECONDS} if fault == GONE else {})
    async with scenario(**settings) as scene:
        await FAULTS[fault](scene)
        results = await scene.results()
        if fault != GONE:
            await scene.server.empty()
    came = {}
    for playing, result in zip(scene.playing, results, strict=True):
        report = result["agentenv"]
        came[playing.phase.title] = (report["status"], report["end_reason"], report["recoveries"])
        if report["status"] == "scored":
            assert result["reward"] == 0.5, report
    _matrix[recover, fault] = [_cell(*came[phase.title]) for phase in PHASES]
    errors = {
        playing.phase.title: result["agentenv"]["error"] for playing, result in zip(scene.playing, results, strict=True)
    }
    assert came == {phase.title: expected(fault, phase, recover) for phase in PHASES}, errors


async def test_an_env_that_dies_of_a_call_twice_is_lost() -> None:
    async with ServerProcess().serve() as server:
        assert await _end(server, 0, adds(3), completion(None, call("die"))) == ("failed", "env_lost", 1)
        await server.empty()


async def test_an_env_whose_answers_differ_is_lost() -> None:
    throw = completion(None, call("dice"))
    async with ServerProcess().serve() as server:
        assert await _end(server, 0, throw, completion(None, call("die"))) == ("failed", "env_lost", 1)
        await server.empty()


async def test_a_task_that_must_not_be_replayed_is_lost() -> None:
    async with ServerProcess().serve() as server:
        assert await _end(server, 3, adds(3), completion(None, call("die"))) == ("failed", "env_lost", 0)
        await server.empty()


async def _end(server: ServerProcess, task: int, *script: dict[str, Any]) -> tuple[str, str, int]:
    chat = ChatServer(*script)
    async with chat.serve():
        given = row(server.url, task)
        result = await agent.run(base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=given)
    report = result["agentenv"]
    return report["status"], report["end_reason"], report["recoveries"]


def _cell(status: str, reason: str, recoveries: int) -> str:
    if status == "failed":
        return f"`{reason}`"
    return "scored" + (f", {recoveries} replay" if recoveries else "")


def _table(matrix: Matrix, recover: int) -> Iterable[str]:
    yield "| fault | " + " | ".join(phase.title for phase in PHASES) + " |"
    yield "|---" * (1 + len(PHASES)) + "|"
    for (allowed, fault), cells in matrix.items():
        if allowed == recover:
            yield f"| {fault} | " + " | ".join(cells) + " |"


BEGIN, END = "<!-- matrix: written by tests/faults/test_matrix.py -->", "<!-- end of matrix -->"


def test_the_documented_matrix_is_what_happens() -> None:
    if len(_matrix) != 2 * len(FAULTS):
        pytest.skip("only a part of the matrix was run")
    lines = [
        "With `recover` 2, the default:",
        "",
        *_table(_matrix, 2),
        "",
        "With `recover` 0:",
        "",
        *_table(_matrix, 0),
    ]
    written = "\n".join([BEGIN, "", *lines, "", END])
    page = ROOT / "docs" / "reliability.md"
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    now = before + written + rest.partition(END)[2]
    if os.environ.get("AGENT_ENV_WRITE_DOCS"):
        page.write_text(now)
    assert page.read_text() == now, "docs/reliability.md is out of date: run this with AGENT_ENV_WRITE_DOCS=1"
