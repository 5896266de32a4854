"""The main job, piece by piece, with the server and the row writer as processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from agent_env.loopback import serving
from agent_env.openenv.client import Session
from agent_env.training.miles import agent
from agent_env.training.policies import POLICIES, Policy, Reply, greedy, read_day
from agent_env.training.rehearsal import DEFAULT_SAMPLING, Hooks, Rehearsal, Sample, read_rows
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine, estimate_tokens
from tests.bundles.gridsim import rules

pytestmark = pytest.mark.integration

HOOKS = Hooks(run=agent.run, reward=agent.reward, keep=agent.keep_scored_groups)
TOKEN = "t0ken-of-the-main-job-test"


@contextlib.contextmanager
def server(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`agent-env serve gridsim-v1` and its URL."""
    command = [sys.executable, "-m", "agent_env.cli", "serve", "gridsim-v1", "--port", "0", *options]
    environment = os.environ | {"AGENTENV_TOKEN": TOKEN}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if url := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield process, url[0]
                    break
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def write_rows(url: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_env.training.miles", url, str(folder), *options]
    environment = os.environ | {"AGENTENV_TOKEN": TOKEN}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)


@contextlib.asynccontextmanager
async def rehearsal(
    policy: Policy, *, context_length: int | None = None, refuse_aborted: bool = False, **options: Any
) -> AsyncIterator[Rehearsal]:
    engine = ScriptedEngine(policy, context_length=context_length)
    app = build_session_app({"policy": engine}, strict=True, refuse_aborted=refuse_aborted)
    async with serving(app) as session_url, Rehearsal(HOOKS, session_url, **options) as ready:
        yield ready


async def listed_tools(url: str) -> list[dict[str, Any]]:
    session = await Session.open(url, timeout=10)
    try:
        await session.reset(timeout=30, split="eval", index=0)
        return await session.list_tools(timeout=10)
    finally:
        await session.close()


def test_the_rows_are_every_task_with_the_tools_that_the_server_lists(tmp_path: Path) -> None:
    with server() as (_, url):
        done = write_rows(url, tmp_path / "data")
        assert (done.returncode, done.stdout) == (0, f"wrote all.jsonl, eval.jsonl, train.jsonl to {tmp_path}/data\n")
        listed = asyncio.run(listed_tools(url))
    counts = {path.name: len(read_rows(path)) for path in (tmp_path / "data").iterdir()}
    assert counts == {"all.jsonl": 2200, "eval.jsonl": 200, "train.jsonl": 2000}
    [tools] = {row["metadata"]["tools"] for row in read_rows(tmp_path / "data" / "all.jsonl")}
    assert [tool["function"] for tool in json.loads(tools)] == [
        {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
        for tool in listed
    ]


def living_envs(server: psutil.Process) -> int:
    """How many envs there are, by the processes: each is two, alone in a pid namespace. (A verifier is one.)"""
    namespaces: Counter[str] = Counter()
    for process in server.children(recursive=True):
        with contextlib.suppress(OSError):
            namespaces[os.readlink(f"/proc/{process.pid}/ns/pid")] += 1
    del namespaces[os.readlink("/proc/self/ns/pid")]
    return sum(processes > 1 for processes in namespaces.values())


def command_lines(server: psutil.Process) -> str:
    words: list[str] = []
    for process in (server, *server.children(recursive=True), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            words += process.cmdline()
    return " ".join(words)


async def test_64_rollouts_share_16_envs_and_all_are_scored(tmp_path: Path) -> None:
    most_live = most_living = 0

    async def watch(url: str, pid: int) -> None:
        nonlocal most_live, most_living
        root = psutil.Process(pid)
        async with httpx.AsyncClient() as client:
            while True:
                status = (await client.get(f"{url}/status")).json()
                most_live = max(most_live, status["live"])
                most_living = max(most_living, living_envs(root))
                await asyncio.sleep(0.1)

    with server("--max-concurrent-envs", "16") as (process, url):
        assert write_rows(url, tmp_path).returncode == 0
        watching = asyncio.create_task(watch(url, process.pid))
        async with rehearsal(POLICIES["greedy"], concurrency=64) as ready:
            groups = await ready.play(read_rows(tmp_path / "eval.jsonl")[:16])
        watching.cancel()
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)  # uvicorn passes the signal on once it is done
        _, left = psutil.wait_procs(children, timeout=5)
    samples = [sample for group in groups for sample in group.samples]
    assert len(samples) == 128
    assert {sample.metadata["agentenv"]["status"] for sample in samples} == {"scored"}
    assert {sample.metadata["agentenv"]["end_reason"] for sample in samples} == {"end_turn"}
    assert all(group.kept for group in groups)
    assert [warning for sample in samples for warning in sample.warnings] == []
    assert 8 <= most_live <= 16
    assert 8 <= most_living <= 16
    assert left == []


async def test_each_day_is_scored_as_its_rules_say(tmp_path: Path) -> None:
    """Against a grade computed here, from the rules and the prompt's prices."""
    with server("--max-concurrent-envs", "16") as (_, url):
        assert write_rows(url, tmp_path).returncode == 0
        rows = read_rows(tmp_path / "eval.jsonl")[:40]
        async with rehearsal(POLICIES["greedy"], group_size=1, concurrency=16) as ready:
            groups = await ready.play(rows)
    for row, group in zip(rows, groups, strict=True):
        day = read_day(row["messages"][-1]["content"])
        as_env = {name: getattr(day, name) for name in ("power", "duration", "efficiency", "wear", "prices")}
        best, _ = rules.optimum(as_env)
        assert group.samples[0].reward == 0.2 + 0.8 * (rules.profit(as_env, greedy(day)) / best)


async def test_a_token_opens_the_server_and_shows_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with server("--token-var", "AGENTENV_TOKEN", "--log-level", "debug") as (process, url):
        refused = write_rows(url, tmp_path / "refused")
        assert (refused.returncode, refused.stdout) == (2, "")
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/status")).status_code == 401
        assert write_rows(url, tmp_path / "data", "--token-var", "AGENTENV_TOKEN").returncode == 0
        rows = read_rows(tmp_path / "data" / "eval.jsonl")[:2]
        async with rehearsal(POLICIES["idle"], group_size=2) as ready:
            monkeypatch.setenv("AGENTENV_TOKEN", TOKEN)
            [kept] = await ready.play(rows[:1])
            monkeypatch.setenv("AGENTENV_TOKEN", "another")
            [lost] = await ready.play(rows[1:])
        commands = command_lines(psutil.Process(process.pid))
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        printed = process.stdout.read()
    assert kept.kept
    assert not lost.kept, "no episode is played with a wrong token"
    written = "".join(path.read_text() for path in (tmp_path / "data").iterdir())
    said = refused.stderr + printed + caplog.text + json.dumps([sample.metadata for sample in kept.samples])
    for place in (written, said, commands):
        assert TOKEN not in place


@pytest.mark.parametrize("policy", ["malformed", "end-turn"])
async def test_what_a_model_does_wrong_is_scored_not_flagged(policy: str, tmp_path: Path) -> None:
    with server() as (_, url):
        assert write_rows(url, tmp_path).returncode == 0
        async with rehearsal(POLICIES[policy], group_size=2) as ready:
            [group] = await ready.play(read_rows(tmp_path / "eval.jsonl")[:1])
    assert group.kept
    told = group.samples[0].metadata["agentenv"]
    assert told["status"] == "scored"
    if policy == "malformed":
        assert (told["turns"], told["invalid_arguments"], told["tool_calls"]) == (6, 4, 6)
        assert group.samples[0].reward > 0.2
    else:
        assert group.samples[0].reward == 0.0


def aborted(messages: Any, tools: Any, request: Any) -> Reply:
    return Reply("so f", finish_reason="abort")


async def test_limits_are_scored_with_the_env_as_it_stands_and_aborts_are_flagged(tmp_path: Path) -> None:
    with server() as (_, url):
        assert write_rows(url, tmp_path).returncode == 0
        row = read_rows(tmp_path / "eval.jsonl")[0]
        first = estimate_tokens(row["messages"]) + estimate_tokens(json.loads(row["metadata"]["tools"]))
        short, fits = {**DEFAULT_SAMPLING, "max_tokens": 8}, {**DEFAULT_SAMPLING, "max_tokens": 100}
        idle, malformed = POLICIES["idle"], POLICIES["malformed"]
        cases: list[tuple[Policy, dict[str, Any], dict[str, Any], str, float, bool]] = [
            # policy, options, the row's settings, and then: end reason, reward, kept
            (idle, {"sampling": short}, {}, "length", 0.0, True),
            (idle, {"max_seq_len": first + 40}, {}, "context_overflow", 0.2, True),
            (idle, {"context_length": first + 130, "sampling": fits}, {}, "context_overflow", 0.2, True),
            (malformed, {}, {"max_turns": 3}, "max_turns", 0.0, True),
            (malformed, {}, {"max_invalid_calls": 2}, "invalid_tool_calls", 0.0, True),
            (aborted, {}, {}, "aborted", 0.0, False),
            (aborted, {"refuse_aborted": True}, {}, "aborted", 0.0, False),
        ]
        for policy, options, settings, end_reason, reward, kept in cases:
            played = row | {"metadata": row["metadata"] | {"server": row["metadata"]["server"] | settings}}
            async with rehearsal(policy, group_size=1, **options) as ready:
                [group] = await ready.play([played])
            sample, case = group.samples[0], (end_reason, options)
            assert group.kept is kept, case
            assert sample.warnings == [], case
            assert (sample.reward or 0.0) == reward, case
            if sample.records:
                assert sample.metadata["agentenv"]["end_reason"] == end_reason, case
            else:  # nothing was recorded, so Miles merges nothing
                assert sample.status is Sample.Status.ABORTED, case
