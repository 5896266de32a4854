"""examples/ray_serve.py on a cluster of two nodes, one of which is lost in the middle of the rollouts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_env.training.rehearsal import Group, read_rows
from tests.peers import peer_python
from tests.scale.hosts import ROOT, play, write_rows

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]

RAY = ("ray[serve]==2.60.0", "websockets", "httpx", "h11", "docker", "huggingface-hub", "prometheus-client", "rich")
"""And what a replica imports of agent_env's own dependencies; agent_env itself is found by PYTHONPATH."""
TOKEN = "t0ken-of-the-replicas"
CAPACITY = 8


class RayCluster:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url: str = self.answer()["url"]

    def ask(self, word: str) -> Any:
        assert self._process.stdin is not None
        print(word, file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the cluster did not start"
        return json.loads(line)


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[RayCluster]:
    python = peer_python(*RAY)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "AGENTENV_TOKEN": TOKEN,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_SERVE_LOG_TO_STDERR": "0",
    }
    command = [python, ROOT / "tests" / "scale" / "ray_cluster.py", str(CAPACITY), str(port)]
    with (
        open(folder / "cluster.log", "w") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=environ, cwd=folder
        ) as process,
    ):
        try:
            yield RayCluster(process)
        finally:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()


def told(groups: list[Group]) -> list[dict[str, Any]]:
    return [sample.metadata["agentenv"] for group in groups for sample in group.samples]


async def test_rollouts_spread_over_nodes_and_survive_the_loss_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTENV_TOKEN", TOKEN)
    with ray_cluster(tmp_path) as cluster:
        nodes = cluster.ask("nodes")
        assert len(set(nodes.values())) == 2, "a replica on each node"
        async with httpx.AsyncClient(base_url=cluster.url, trust_env=False, timeout=20) as client:
            assert (await client.get("/health")).status_code == 200
            assert (await client.get("/status")).status_code == 401
            client.headers["authorization"] = f"Bearer {TOKEN}"
            assert (await client.get("/status")).json()["capacity"] == CAPACITY

            done = write_rows(cluster.url, tmp_path / "data", "--token-var", "AGENTENV_TOKEN")
            assert done.returncode == 0, done.stderr
            rows = read_rows(tmp_path / "data" / "eval.jsonl")

            # More rollouts than both replicas have room for: the rest waits.
            calm = told(await play(rows[:4], concurrency=32, think=0.2))
            assert Counter(one["end_reason"] for one in calm) == {"end_turn": 32}
            # The proxy asks the replica of its own node.
            here = (await client.get("/status")).json()["totals"].get("scored", 0)
            assert 4 <= here <= 28, "each replica plays some"

            playing = asyncio.create_task(play(rows[:2], concurrency=16, think=4.0))
            await asyncio.sleep(6.0)
            assert cluster.ask("remove")["killed"] > 0
            stormy = told(await playing)
    assert Counter(one["end_reason"] for one in stormy) == {"end_turn": 16}
    assert sum(one["recoveries"] for one in stormy) >= 1, "those of the lost node were replayed on the other"
    assert TOKEN not in (tmp_path / "cluster.log").read_text()
