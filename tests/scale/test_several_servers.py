"""Rows that name three servers, one of which dies and comes back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_env.training.rehearsal import Group, read_rows
from tests.scale.hosts import Host, play, write_rows

pytestmark = [pytest.mark.faults, pytest.mark.timeout(240)]


def ends(groups: list[Group]) -> Counter[str]:
    return Counter(sample.metadata["agentenv"]["end_reason"] for group in groups for sample in group.samples)


async def scored(host: Host) -> int:
    totals: dict[str, int] = (await host.status())["totals"]
    return totals.get("scored", 0)


async def test_a_server_that_dies_loses_no_rollout_and_rejoins(tmp_path: Path) -> None:
    async with Host(capacity=16) as a, Host(capacity=16) as b, Host(capacity=16) as c:
        hosts = (a, b, c)
        done = write_rows(",".join(host.url for host in hosts), tmp_path)
        assert done.returncode == 0, done.stderr
        rows = read_rows(tmp_path / "eval.jsonl")[:6]
        assert rows[0]["metadata"]["server"]["urls"] == [host.url for host in hosts]

        assert ends(await play(rows, concurrency=24)) == {"end_turn": 48}
        shares = [await scored(host) for host in hosts]
        assert sum(shares) == 48
        assert min(shares) >= 8, "rollouts spread over the servers"

        playing = asyncio.create_task(play(rows, concurrency=36, think=1.0))
        await a.until_thinking(4)
        await a.kill()
        groups = await playing
        assert ends(groups) == {"end_turn": 48}
        recovered = sum(sample.metadata["agentenv"]["recoveries"] > 0 for group in groups for sample in group.samples)
        assert recovered >= 4, "the rollouts that played there went on elsewhere"
        assert all(group.kept for group in groups)

        await a.start()
        assert ends(await play(rows, concurrency=24)) == {"end_turn": 48}
        assert await scored(a) >= 8, "it is used again"


async def test_full_servers_are_passed_over_then_queued_at(tmp_path: Path) -> None:
    """Three servers with room for two each, and 24 rollouts at once."""
    async with Host(capacity=2) as a, Host(capacity=2) as b, Host(capacity=2) as c:
        assert write_rows(",".join(host.url for host in (a, b, c)), tmp_path).returncode == 0
        groups = await play(read_rows(tmp_path / "eval.jsonl")[:3], concurrency=24, think=0.1)
        assert ends(groups) == {"end_turn": 24}
        assert min([await scored(host) for host in (a, b, c)]) >= 4


async def test_rows_are_pointed_elsewhere_without_being_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Host(capacity=8) as a, Host(capacity=8) as b:
        assert write_rows(a.url, tmp_path, "--url-var", "ENV_SERVERS").returncode == 0
        rows: list[dict[str, Any]] = read_rows(tmp_path / "eval.jsonl")[:1]
        assert b.url not in json.dumps(rows)
        monkeypatch.setenv("ENV_SERVERS", b.url)
        assert ends(await play(rows, concurrency=8)) == {"end_turn": 8}
        assert (await scored(a), await scored(b)) == (0, 8)
