"""What many live episodes cost: memory each, and how long calls take while all of them play.

    python benchmarks/live.py                       # 64, 256 and 1000 GridSim episodes at once
    python benchmarks/live.py --sessions 512 --think 10

Every session resets, waits until all are up, makes its calls at random moments, and ends: each must be scored. Memory
is what MemAvailable lost between the idle server and all episodes live, the driver's share taken off, divided by their
number; so page tables, sockets and namespaces are in it. PSS is the processes' alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
from collections import Counter
from typing import Any

from common import add_json, available_mib, finish, machine, many_files, ours, processes, pss_mib, served
from driver import END, GRIDSIM, Report, ask, step
from websockets.asyncio.client import ClientConnection, connect

RESETS_AT_ONCE = 16
SETTLE = 2.0
"""Seconds before memory is looked at."""


async def crowd(url: str, server: int, count: int, calls: int, think: float) -> dict[str, Any]:
    report, slots = Report(), asyncio.Semaphore(RESETS_AT_ONCE)
    sockets: list[ClientConnection] = []
    idle, own = available_mib(), pss_mib([os.getpid()])
    idle_pss = pss_mib([server, *processes(server)])

    async def open_one(number: int) -> None:
        async with slots:
            socket = await connect(url.replace("http", "ws", 1) + "/ws?wait=600", compression=None, proxy=None)
            sockets.append(socket)
            data = {"split": "eval", "index": number % GRIDSIM.indices}
            reply = await ask(socket, report, "reset", {"type": "reset", "data": data})
            if reply["data"]["done"]:
                raise RuntimeError(str(reply)[:300])

    async def play(socket: ClientConnection) -> None:
        for _ in range(calls):
            await asyncio.sleep(random.uniform(0, 2 * think))
            await ask(socket, report, "call", step(GRIDSIM.calls[0]))

    async def end(socket: ClientConnection) -> None:
        await asyncio.sleep(random.uniform(0, count / 50))
        reply = await ask(socket, report, "end", step(END))
        scored = reply["data"]["done"] and isinstance(reply["data"]["reward"], int | float)
        report.ended["scored" if scored else str(reply)[:200]] += 1

    try:
        begun = time.perf_counter()
        await asyncio.gather(*(open_one(number) for number in range(count)))
        up = time.perf_counter() - begun
        await asyncio.sleep(SETTLE)
        driver = pss_mib([os.getpid()]) - own
        taken = (idle - available_mib() - driver) / count
        pss = (pss_mib([server, *processes(server)]) - idle_pss) / count
        begun = time.perf_counter()
        await asyncio.gather(*(play(socket) for socket in sockets))
        seconds = time.perf_counter() - begun
        await asyncio.gather(*(end(socket) for socket in sockets))
    finally:
        begun = time.perf_counter()
        await asyncio.gather(*(socket.close() for socket in sockets), return_exceptions=True)
    return {
        "live": count,
        "scored": report.ended["scored"],
        "up s": round(up, 1),
        "resets/s": round(count / up, 1),
        "MiB each": round(taken, 2),
        "PSS MiB each": round(pss, 2),
        "calls/s": round(len(report.latency["call"]) / seconds, 1),
        "call p50": report.ms("call", 0.5),
        "call p99": report.ms("call", 0.99),
        "reset p50": report.ms("reset", 0.5),
        "end p50": report.ms("end", 0.5),
        "end p99": report.ms("end", 0.99),
        "down s": round(time.perf_counter() - begun, 1),
        "others": dict(Counter({end: times for end, times in report.ended.items() if end != "scored"})),
    }


def run(sessions: list[int], calls: int, think: float) -> list[dict[str, Any]]:
    rows = []
    for count in sessions:
        with served(ours(count)) as (url, pid):
            asyncio.run(warm(url))
            rows.append(asyncio.run(crowd(url, pid, count, calls, think)))
    return rows


async def warm(url: str) -> None:
    """One episode: the fork servers are up, and the libraries loaded."""
    async with connect(url.replace("http", "ws", 1) + "/ws", compression=None, proxy=None) as socket:
        report = Report()
        await ask(socket, report, "reset", {"type": "reset", "data": {"split": "eval", "index": 0}})
        await ask(socket, report, "end", step(END))
        await socket.send(json.dumps({"type": "close"}))
    await asyncio.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", nargs="+", type=int, default=[64, 256, 1000], metavar="N")
    parser.add_argument("--calls", type=int, default=3, help="of each episode (default: 3)")
    parser.add_argument("--think", type=float, default=5.0, help="seconds before a call, on average (default: 5)")
    add_json(parser)
    options = parser.parse_args()
    many_files()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.sessions, options.calls, options.think)
    finish(result, result["rows"], options.json)


if __name__ == "__main__":
    main()
