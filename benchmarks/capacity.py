"""What a step of rollouts needs: measures the costs on this host with your bundle, and computes hosts from them.

    python benchmarks/capacity.py --rollouts 256 4096 65536
    python benchmarks/capacity.py --bundle bundles/my-bundle --turn-seconds 20 --turns 6 --cores 64 --memory 256

Measured with `--sessions` live episodes: memory of each, and CPU time (of the server, its fork servers and all envs) of
one episode without calls, and of one call. The plan divides cores and memory of the hosts that
you mean to use by them, with a third of both left free. It assumes that cost grows linearly with episodes, as live.py
finds up to 1,000.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import time
from pathlib import Path
from typing import Any

from common import GRIDSIM, add_json, available_mib, finish, machine, many_files, ours, processes, served

from agent_env.openenv.client import Session

CALLS = 20
FREE = 1 / 3
"""Of cores and memory, for bursts: all rollouts of a step begin at once."""


def cpu_seconds(server: int) -> tuple[float, float]:
    """Of the server's own process, and of it with its fork servers and all that they have forked and seen end."""
    own, everything = 0.0, 0.0
    for pid in (server, *processes(server)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        user, system, child_user, child_system = (int(word) / os.sysconf("SC_CLK_TCK") for word in fields[11:15])
        own += user + system if pid == server else 0.0
        everything += user + system + child_user + child_system
    return own, everything


async def episodes(url: str, count: int, calls: int, at_once: int) -> None:
    """Play so many, with so many calls of the first tool each; without arguments, so mostly without its own work."""
    room = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with room:
            session = await Session.open(url, timeout=60, wait=600)
            try:
                await session.reset(timeout=600)
                tools = [tool["name"] for tool in await session.list_tools(timeout=60) if tool["name"] != "end_turn"]
                for _ in range(calls):
                    await session.call(tools[0], {}, timeout=600)
                await session.call("end_turn", {"response": ""}, timeout=600)
            finally:
                await session.close()

    await asyncio.gather(*(one(number) for number in range(count)))


async def held(url: str, count: int) -> float:
    """MiB of memory that each of so many live episodes takes."""
    before = available_mib()
    sessions = []
    try:
        for _ in range(count):
            sessions.append(await Session.open(url, timeout=60, wait=600))
            await sessions[-1].reset(timeout=600)
        await asyncio.sleep(2)
        return (before - available_mib()) / count
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


def measure(bundle: Path, sessions: int) -> dict[str, float]:
    with served(ours(sessions, bundle)) as (url, server):
        asyncio.run(episodes(url, 4, 1, 2))
        costs = {"MiB": asyncio.run(held(url, sessions))}
        own: dict[int, float] = {}
        used: dict[int, float] = {}
        for calls in (0, CALLS):
            before = cpu_seconds(server)
            asyncio.run(episodes(url, sessions, calls, 8))
            time.sleep(1)  # for the last envs to be gone
            after = cpu_seconds(server)
            own[calls], used[calls] = ((b - a) * 1000 / sessions for a, b in zip(before, after, strict=True))
    costs["CPU ms an episode"] = used[0]
    costs["CPU ms a call"] = (used[CALLS] - used[0]) / CALLS
    costs["of the server, an episode"] = own[0]
    costs["of the server, a call"] = (own[CALLS] - own[0]) / CALLS
    return costs


def plan(costs: dict[str, float], rollouts: int, options: argparse.Namespace) -> dict[str, Any]:
    """Hosts for so many rollouts that are all live at once."""
    seconds = options.turns * options.turn_seconds
    per_second = rollouts / seconds
    cores = per_second * (costs["CPU ms an episode"] + options.turns * costs["CPU ms a call"]) / 1000 / (1 - FREE)
    memory = rollouts * costs["MiB"] / 1024 / (1 - FREE)
    # A server is one event loop: it can use one core, whatever the host has.
    busy = per_second * (costs["of the server, an episode"] + options.turns * costs["of the server, a call"]) / 1000
    loops = math.ceil(busy / (1 - FREE))
    hosts = max(math.ceil(cores / options.cores), math.ceil(memory / options.memory), 1)
    return {
        "rollouts": rollouts,
        "episodes/s": round(per_second, 1),
        "cores": math.ceil(cores),
        "memory GiB": math.ceil(memory),
        "hosts": hosts,
        "servers": max(loops, hosts),
        "episodes a host": math.ceil(rollouts / hosts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=GRIDSIM)
    parser.add_argument("--sessions", type=int, default=128, help="live episodes to measure with (default: 128)")
    parser.add_argument("--rollouts", nargs="+", type=int, default=[256, 4096, 65536], metavar="N")
    parser.add_argument("--turns", type=int, default=4, help="calls of a rollout (default: 4)")
    parser.add_argument("--turn-seconds", type=float, default=10.0, help="from call to call (default: 10)")
    parser.add_argument("--cores", type=int, default=32, help="of a host that you would use (default: 32)")
    parser.add_argument("--memory", type=int, default=128, help="GiB of such a host (default: 128)")
    add_json(parser)
    options = parser.parse_args()
    many_files()
    result: dict[str, Any] = {"machine": machine()}
    costs = result["costs"] = measure(options.bundle.resolve(), options.sessions)
    print("; ".join(f"{name}: {value:.2f}" for name, value in costs.items()))
    result["rows"] = [plan(costs, count, options) for count in options.rollouts]
    finish(result, result["rows"], options.json)


if __name__ == "__main__":
    main()
