"""The trainer's side: the agent function's own CPU time per model turn, and a step of 1,024 rollouts on one event loop.

    python benchmarks/trainer.py                    # 64 rollouts for the CPU time, then 1024 at once

Env server and session server are processes of their own; what is measured is this process, in which nothing but the
agent function runs. The policy takes six turns, with a tool call in each.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from common import add_json, finish, machine, many_files, median, ours, served

from agent_env.training.miles import agent
from agent_env.training.rehearsal import DEFAULT_SAMPLING, read_rows

CAPACITY = 128
POLICY = "malformed"
SESSIONS = [sys.executable, "-m", "agent_env.cli", "session-server", "--port", "{port}", "--policy", POLICY]


async def step(rows: list[dict[str, Any]], chat_url: str, count: int) -> dict[str, Any]:
    """`count` rollouts at once."""
    limits = httpx.Limits(max_connections=8)
    async with httpx.AsyncClient(base_url=chat_url, timeout=None, trust_env=False, limits=limits) as client:
        opened = [(await client.post("/sessions", json={})).json()["session_id"] for _ in range(count)]
    cpu, begun = time.process_time(), time.perf_counter()
    results = await asyncio.gather(
        *(
            agent.run(
                base_url=f"{chat_url}/sessions/{session}",
                prompt=rows[number % len(rows)]["messages"],
                request_kwargs=dict(DEFAULT_SAMPLING),
                metadata=rows[number % len(rows)]["metadata"],
            )
            for number, session in enumerate(opened)
        )
    )
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - begun
    told = [result["agentenv"] for result in results]
    turns = sum(one["turns"] for one in told)
    ends = Counter(one["end_reason"] for one in told)
    errors = Counter(str(one["error"]) for one in told if one["error"])
    return {
        "rollouts": count,
        "scored": sum(one["status"] == "scored" for one in told),
        "turns": turns,
        "seconds": round(seconds, 1),
        "rollouts/s": round(count / seconds, 1),
        "CPU ms/turn": round(1000 * cpu / turns, 3) if turns else None,
        "ends": dict(ends),
        "errors": dict(errors.most_common(3)),
    }


def run(counts: list[int], rounds: int) -> list[dict[str, Any]]:
    with served(ours(CAPACITY)) as (url, _), served(SESSIONS) as (chat_url, _), tempfile.TemporaryDirectory() as folder:
        writer = [sys.executable, "-m", "agent_env.training.miles", url, folder]
        subprocess.run(writer, check=True, stdout=subprocess.DEVNULL)
        rows = read_rows(Path(folder) / "eval.jsonl")
        asyncio.run(step(rows, chat_url, 4))
        found = []
        for count in counts:
            tries = [asyncio.run(step(rows, chat_url, count)) for _ in range(rounds if count < 512 else 1)]
            middle = median([one["CPU ms/turn"] for one in tries])
            found.append(min(tries, key=lambda one: abs(one["CPU ms/turn"] - middle)))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", nargs="+", type=int, default=[64, 1024], metavar="N", help="at once")
    parser.add_argument("--rounds", type=int, default=3, help="the median one is shown; one round from 512 rollouts on")
    add_json(parser)
    options = parser.parse_args()
    logging.getLogger("agent_env").setLevel(logging.ERROR)
    many_files()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.rollouts, options.rounds)
    finish(result, result["rows"], options.json)


if __name__ == "__main__":
    main()
