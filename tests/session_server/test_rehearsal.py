"""What the rehearsal does around an agent function, over fakes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_env.loopback import serving
from agent_env.training.policies import Policy, Reply
from agent_env.training.rehearsal import Group, Hooks, Rehearsal, Sample, read_rows
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine
from tests.session_server.doubles import USER

pytestmark = pytest.mark.integration

ROW = {"messages": [USER], "metadata": {"split": "eval", "index": 3}}


async def one_turn(base_url: str, prompt: Any, request_kwargs: Any, metadata: Any) -> dict[str, Any]:
    """An agent function that takes one chat turn and returns what it was given."""
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{base_url}/v1/chat/completions", json={"messages": prompt} | request_kwargs)
    assert answer.status_code == 200
    return {"reward": 0.5, "given": metadata | {"kwargs": request_kwargs}, "agent_metrics": {"total_tool_time": 1.5}}


async def half(args: Any, sample: Any, **kwargs: Any) -> float:
    return float(sample.metadata["reward"])


def keep_all_rewarded(args: Any, samples: list[Sample], **kwargs: Any) -> bool:
    return all(sample.reward is not None for sample in samples)


@asynccontextmanager
async def rehearsal(
    run: Any = one_turn, keep: Any = keep_all_rewarded, policy: Policy | None = None, **options: Any
) -> AsyncIterator[Rehearsal]:
    engine = ScriptedEngine(policy or (lambda messages, tools, request: Reply("ok")))
    async with (
        serving(build_session_app({"test": engine})) as url,
        Rehearsal(Hooks(run=run, reward=half, keep=keep), url, group_size=2, **options) as ready,
    ):
        yield ready


async def test_the_agent_function_gets_what_miles_gives_and_its_answer_is_merged() -> None:
    async with rehearsal(sampling={"max_tokens": 10}, max_seq_len=99) as ready:
        group = await ready.play_group(ROW, 4)
    first, second = group.samples
    assert (group.kept, first.reward, first.status) == (True, 0.5, Sample.Status.COMPLETED)
    assert (first.index, second.index, first.group_index) == (8, 9, 4)
    given = first.metadata["given"]
    assert given.pop("session_server_id").startswith("127.0.0.1:")
    assert given == {"split": "eval", "index": 3, "max_seq_len": 99, "kwargs": {"max_tokens": 10}}
    assert first.non_generation_time == 1.5
    assert first.records[0]["request"]["messages"] == [USER]
    assert ROW["metadata"] == {"split": "eval", "index": 3}, "a row is never changed"


async def test_a_session_without_a_turn_is_aborted_and_unrewarded() -> None:
    async def run(**given: Any) -> dict[str, Any]:
        return {"reward": 1.0}

    async with rehearsal(run) as ready:
        group = await ready.play_group(ROW)
    assert not group.kept
    assert all((sample.status, sample.reward) == (Sample.Status.ABORTED, None) for sample in group.samples)
    assert "reward" not in group.samples[0].metadata


async def test_what_the_agent_function_raises_is_swallowed_as_miles_does() -> None:
    async def run(**given: Any) -> dict[str, Any]:
        await one_turn(**given)
        raise RuntimeError("broken")

    async def reward(args: Any, sample: Any, **kwargs: Any) -> float:
        return float(sample.metadata.get("reward", 0.0))

    async with rehearsal(run) as ready:
        ready.hooks = Hooks(run=run, reward=reward, keep=keep_all_rewarded)
        group = await ready.play_group(ROW)
    assert [sample.reward for sample in group.samples] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("finish_reason", "status"), [("length", Sample.Status.TRUNCATED), ("abort", Sample.Status.ABORTED)]
)
async def test_the_last_turn_gives_the_status(finish_reason: str, status: Sample.Status) -> None:
    async with rehearsal(policy=lambda m, t, r: Reply("x", finish_reason=finish_reason)) as ready:
        group = await ready.play_group(ROW)
    assert {sample.status for sample in group.samples} == {status}
    assert {sample.reward for sample in group.samples} == ({None} if finish_reason == "abort" else {0.5})


async def test_a_filter_may_answer_with_an_object() -> None:
    class Verdict:
        keep = False

    async with rehearsal(keep=lambda args, samples: Verdict()) as ready:
        assert (await ready.play_group(ROW)).kept is False


async def test_rows_are_played_in_order_with_bounded_concurrency() -> None:
    live = most = 0

    async def run(**given: Any) -> dict[str, Any]:
        nonlocal live, most
        live += 1
        most = max(most, live)
        try:
            await asyncio.sleep(0.01)
            return await one_turn(**given)
        finally:
            live -= 1

    heard: list[Group] = []
    rows = [{"messages": [USER], "metadata": {"index": index}} for index in range(4)]
    async with rehearsal(run, concurrency=3) as ready:
        groups = await ready.play(rows, heard.append)
    assert [group.samples[0].metadata["index"] for group in groups] == [0, 1, 2, 3]
    assert len(heard) == 4
    assert most == 3


async def test_cancelling_ends_the_rollouts_and_their_sessions() -> None:
    started, ended = asyncio.Event(), 0

    async def run(**given: Any) -> dict[str, Any]:
        nonlocal ended
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended += 1
        return {}

    async with rehearsal(run) as ready:
        playing = asyncio.create_task(ready.play([ROW]))
        await started.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
    assert ended >= 1


def test_rows_are_split_at_newlines_only(tmp_path: Path) -> None:
    rows = [{"text": "a\u2028b"}, {"text": "c"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    assert read_rows(path) == rows
