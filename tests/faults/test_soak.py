"""Thousands of GridSim rollouts with random faults: none is lost that can be saved, and nothing leaks.

AGENT_ENV_SOAK_ROLLOUTS says how many (default 500). With AGENT_ENV_WRITE_DOCS=1 the result goes into
docs/reliability.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_env.training import policies
from agent_env.training.miles import agent
from agent_env.training.miles.rows import write_rows
from agent_env.training.policies import Day, read_day
from agent_env.training.types import ServerSettings
from tests.faults.doubles import ROOT, Proxy, ServerProcess
from tests.training.chat_server import Answer, ChatServer, Drop, Scripted, call, completion

pytestmark = [pytest.mark.faults, pytest.mark.timeout(4000)]

ROLLOUTS = int(os.environ.get("AGENT_ENV_SOAK_ROLLOUTS", "500"))
AT_ONCE = 32
FAULTS = {
    "connection reset": ("scored", "replied"),
    "env killed": ("scored", "replied"),
    "session answers 502": ("scored", "replied"),
    "session drops the request": ("failed", "model_error"),
    "generation aborted": ("failed", "aborted"),
}
"""What befalls one rollout in a hundred, and how it has to end."""
PLANS: dict[str, Callable[[Day], list[int]]] = {
    "idle": policies.idle,
    "greedy": policies.greedy,
    "optimum": policies.optimum,
}


def score(day: Day, plan: list[int]) -> float:
    """What a plan is worth, by the prompt's rules alone: no code of the bundle's."""

    def profit(hours: list[int]) -> int:
        return sum(-n * day.buy(hour) if n > 0 else -n * day.sell(hour) for hour, n in enumerate(hours))

    return 0.2 + 0.8 * profit(plan) / profit(policies.optimum(day))


def model(plan: Callable[[Day], list[int]]) -> Callable[[dict[str, Any], int], Scripted]:
    """A model that submits its plan, and then says so."""

    def answer(request: dict[str, Any], place: int) -> Scripted:
        if request["messages"][-1]["role"] == "tool":
            return completion("Submitted.")
        day = read_day(request["messages"][1]["content"])
        return completion(None, call("submit_schedule", {"schedule": plan(day)}))

    return answer


@dataclass
class Soak:
    server: ServerProcess
    chats: dict[str, ChatServer]
    rows: list[dict[str, Any]]
    random: random.Random = field(default_factory=lambda: random.Random(11))
    ends: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    recoveries: int = 0

    async def play(self, number: int) -> None:
        """One rollout, and a look at its end."""
        row = self.rows[number % len(self.rows)]
        name = list(PLANS)[number % len(PLANS)]
        fault = self.random.choice(list(FAULTS)) if self.random.random() < 0.01 else ""
        async with AsyncExitStack() as stack:
            url, chat = await self._prepare(stack, fault, name)
            server = {**row["metadata"]["server"], "url": url}
            result = await agent.run(
                base_url=chat.base_url,
                prompt=row["messages"],
                request_kwargs={"temperature": 1.0},
                metadata={**row["metadata"], "server": server},
            )
        report = result["agentenv"]
        self.ends[fault, report["status"], report["end_reason"]] += 1
        self.recoveries += report["recoveries"]
        day = read_day(row["messages"][1]["content"])
        wanted = FAULTS.get(fault, ("scored", "replied"))
        right = score(day, PLANS[name](day)) if wanted[0] == "scored" else 0.0
        if (report["status"], report["end_reason"]) != wanted or abs(result["reward"] - right) > 1e-9:
            self.wrong.append(f"rollout {number}, {name}, {fault or 'no fault'}: {json.dumps(report)}, not {right}")

    async def _prepare(self, stack: AsyncExitStack, fault: str, name: str) -> tuple[str, ChatServer]:
        """The env server's URL and the session server for one rollout."""
        if not fault:
            return self.server.url, self.chats[name]
        proxy = await stack.enter_async_context(Proxy(self.server.port).serve())
        strike: dict[str, Callable[[], object]] = {
            "connection reset": proxy.cut,
            "env killed": lambda: self.server.kill_envs(1),
        }
        said: dict[str, Scripted] = {
            "session answers 502": Answer(502, {"error": "backend transport error: ConnectError"}),
            "session drops the request": Drop(),
            "generation aborted": completion("half", finish="abort"),
        }
        ordinary, struck_at = model(PLANS[name]), self.random.randrange(2)

        def answer(request: dict[str, Any], place: int) -> Scripted:
            if place == struck_at and fault in strike:
                asyncio.get_running_loop().call_later(self.random.uniform(0.0, 0.1), strike[fault])
            return said[fault] if place == struck_at and fault in said else ordinary(request, place)

        chat = ChatServer(answer=answer)
        await stack.enter_async_context(chat.serve())
        return proxy.url, chat

    async def play_all(self, begin: int, end: int) -> None:
        numbers = iter(range(begin, end))

        async def worker() -> None:
            for number in numbers:
                await self.play(number)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


@asynccontextmanager
async def soaking(folder: Path) -> AsyncIterator[Soak]:
    async with (
        ServerProcess(str(ROOT / "bundles" / "gridsim-v1"), AT_ONCE).serve() as server,
        AsyncExitStack() as stack,
    ):
        chats = {name: ChatServer(answer=model(plan)) for name, plan in PLANS.items()}
        for chat in chats.values():
            chat.recording = False
            await stack.enter_async_context(chat.serve())
        settings = ServerSettings(
            urls=(server.url,), reset_timeout=120.0, call_timeout=60.0, model_timeout=60.0, recover=4
        )
        await write_rows(settings, folder, progress=lambda text: None)
        yield Soak(server, chats, [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()])


@dataclass(frozen=True)
class Used:
    """What is held: by the server and its processes, and by this process."""

    processes: int
    server_descriptors: int
    server_bytes: int
    own_descriptors: int
    own_bytes: int

    @classmethod
    async def now(cls, soak: Soak) -> Used:
        await soak.server.empty()
        await asyncio.sleep(1.0)
        server, own = psutil.Process(soak.server.pid), psutil.Process()
        return cls(
            len(soak.server.processes()),
            server.num_fds(),
            server.memory_info().rss,
            own.num_fds(),
            own.memory_info().rss,
        )


async def test_rollouts_with_random_faults(tmp_path: Path) -> None:
    async with soaking(tmp_path) as soak:
        warm = min(200, ROLLOUTS // 2)
        await soak.play_all(0, warm)
        before = await Used.now(soak)
        began = time.monotonic()
        await soak.play_all(warm, ROLLOUTS)
        seconds = time.monotonic() - began
        after = await Used.now(soak)
    assert not soak.wrong, soak.wrong[:5]
    assert sum(soak.ends.values()) == ROLLOUTS
    assert after.processes <= before.processes + 2, (before, after)
    assert after.server_descriptors <= before.server_descriptors + 8, (before, after)
    assert after.own_descriptors <= before.own_descriptors + 8, (before, after)
    assert after.server_bytes - before.server_bytes < 32e6, (before, after)
    assert after.own_bytes - before.own_bytes < 32e6, (before, after)
    if os.environ.get("AGENT_ENV_WRITE_DOCS"):
        write_docs(soak, before, after, seconds / (ROLLOUTS - warm))


BEGIN, END = "<!-- soak: written by tests/faults/test_soak.py -->", "<!-- end of soak -->"


def write_docs(soak: Soak, before: Used, after: Used, seconds: float) -> None:
    rows = [
        f"| {fault or 'none'} | {count} | {status}, `{reason}` |"
        for (fault, status, reason), count in sorted(soak.ends.items())
    ]
    lines = [
        BEGIN,
        "",
        f"{ROLLOUTS:,} rollouts, {AT_ONCE} at once, on {os.cpu_count()} cores: {1 / seconds:.0f} a second, each in an "
        f"env of its own; {soak.recoveries} recoveries by replay. Every reward is what an independent oracle computes.",
        "",
        "| fault | rollouts | all of them |",
        "|---|---|---|",
        *rows,
        "",
        "| held, with no rollout in flight | after the first 200 | at the end |",
        "|---|---|---|",
        f"| processes of the server | {before.processes} | {after.processes} |",
        f"| descriptors of the server | {before.server_descriptors} | {after.server_descriptors} |",
        f"| memory of the server | {before.server_bytes / 2**20:.0f} MiB | {after.server_bytes / 2**20:.0f} MiB |",
        f"| descriptors of the agent's process | {before.own_descriptors} | {after.own_descriptors} |",
        f"| memory of the agent's process | {before.own_bytes / 2**20:.0f} MiB | {after.own_bytes / 2**20:.0f} MiB |",
        "",
        END,
    ]
    page = ROOT / "docs" / "reliability.md"
    head, _, rest = page.read_text().partition(BEGIN)
    page.write_text(head + "\n".join(lines) + rest.partition(END)[2])
