"""Episodes a second, latencies, memory and footprint of our server, beside the official OpenEnv server and
agentenv-framework's.

    python benchmarks/openenv.py                              # 1, 32, 64 and 256 sessions
    python benchmarks/openenv.py --sessions 32 --rounds 5 --servers ours official

Ours plays GridSim: each episode in a sandboxed env of its own, and scored by a verifier in another sandbox; and once
more with an env that is a FastMCP server, forked warm, as a third party's would be. The official server's env is an
object in its own process that echoes; the framework's bundle has no tool at all. Each round plays all servers, one
right after the other, so that a noisy machine is unfair to all alike: compare ratios. Memory is what the server and all
that it started hold while so many sessions are reset and idle, less what they hold with none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from dataclasses import dataclass
from typing import Any

import footprint
from common import (
    SERVERS,
    add_json,
    finish,
    machine,
    many_files,
    median,
    ours,
    processes,
    pss_mib,
    served,
    table,
    theirs,
)
from driver import ECHO, ECHO_SCORED, GRIDSIM, HELLO, Game, Report, opened, play

GAMES: dict[str, Game] = {"ours": GRIDSIM, "ours, FastMCP env": ECHO_SCORED, "official": ECHO, "framework": HELLO}
OURS = ("ours", "ours, FastMCP env")
MOST_SESSIONS = {"framework": 64, "ours, FastMCP env": 64}
"""Beyond, the framework's resets take minutes."""
LESS_IS_BETTER = ("reset p50", "reset p99", "call p50", "call p99", "MiB/session")
FOOTPRINTS = {"ours": "ours: server", "official": "official server", "framework": "agentenv-framework"}
"""What footprint.py calls their packages."""
SETTLE = 2.0
"""Seconds before memory is looked at."""


def episodes_of(name: str, sessions: int, seconds: float) -> int:
    """Enough for the given seconds, about, and for every session to play."""
    guess = {"ours": 60.0, "ours, FastMCP env": 10.0, "official": 40.0, "framework": 1.3}[name]
    return max(sessions, int(guess * seconds))


@dataclass(frozen=True, slots=True)
class Measured:
    """One server, one round."""

    report: Report
    mib: float
    """Memory of a session that is reset and idle."""


def command_of(name: str, sessions: int) -> list[str]:
    if name == "ours":
        return ours(sessions)
    return ours(sessions, SERVERS / "echo") if name in OURS else theirs(name, sessions)


def measure(name: str, sessions: int, seconds: float) -> Measured:
    """Episodes to warm the server up, then memory with all sessions open, then the load that counts."""
    room = 2 * sessions + 8  # a connection that closes still holds its slot for a moment
    command = command_of(name, room)
    game = GAMES[name]
    with served(command) as (url, server):
        asyncio.run(play(url, game, sessions=min(sessions, 4), episodes=4 if name != "framework" else 1))
        mib = asyncio.run(memory_of_sessions(url, game, server, sessions))
        report = asyncio.run(play(url, game, sessions=sessions, episodes=episodes_of(name, sessions, seconds)))
    return Measured(report, mib)


async def memory_of_sessions(url: str, game: Game, server: int, sessions: int) -> float:
    """MiB of each of so many at once, shared pages divided among those that share them."""

    def held() -> float:
        return pss_mib([server, *processes(server)])

    await asyncio.sleep(SETTLE)  # what the episodes before have left is gone, or stays
    idle = held()
    async with contextlib.AsyncExitStack() as stack:
        slots = asyncio.Semaphore(8)

        async def hold(number: int) -> None:
            async with slots:
                await stack.enter_async_context(opened(url, game, number, Report()))

        await asyncio.gather(*(hold(number) for number in range(sessions)))
        await asyncio.sleep(SETTLE)
        return (held() - idle) / sessions


def row(name: str, sessions: int, rounds: list[Measured]) -> dict[str, Any]:
    reports = [measured.report for measured in rounds]

    def of(phase: str, share: float) -> float | None:
        values = [value for report in reports if (value := report.ms(phase, share)) is not None]
        return round(median(values), 2) if values else None

    failed = sum(count for report in reports for end, count in report.ended.items() if end != "ok")
    return {
        "server": name,
        "sessions": sessions,
        "episodes": sum(report.ended["ok"] for report in reports),
        "failed": failed,
        "episodes/s": round(median([report.rate for report in reports]), 2),
        "reset p50": of("reset", 0.5),
        "reset p99": of("reset", 0.99),
        "call p50": of("call", 0.5),
        "call p99": of("call", 0.99),
        "end p50": of("end", 0.5),
        "end p99": of("end", 0.99),
        "first p50": of("first", 0.5),
        "MiB/session": round(median([measured.mib for measured in rounds]), 2),
    }


def run(servers: list[str], sessions: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for count in sessions:
        names = [name for name in servers if count <= MOST_SESSIONS.get(name, count)]
        found: dict[str, list[Measured]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                measured = measure(name, count, seconds)
                found[name].append(measured)
                for end, times in measured.report.ended.items():
                    if end != "ok":
                        print(f"{name}, {count} sessions: {times} times {end}", file=sys.stderr)
        rows += [row(name, count, found[name]) for name in names]
    return rows


def ratios(rows: list[dict[str, Any]], footprint: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times better ours is, server by server: above 1 is better, below 1 worse."""
    found = []
    mine = {row["sessions"]: row for row in rows if row["server"] == "ours"}
    sizes = {row["what"]: row for row in footprint}
    for other in rows:
        our = mine.get(other["sessions"])
        if our is None or other["server"] in OURS:
            continue
        pairs = {name: (other[name], our[name]) for name in LESS_IS_BETTER}
        if sizes:
            package = sizes[FOOTPRINTS[other["server"]]]
            pairs |= {name: (package[name], sizes[FOOTPRINTS["ours"]][name]) for name in ("import s", "MiB")}
        found.append(
            {
                "ours against": other["server"],
                "sessions": other["sessions"],
                "episodes/s": our["episodes/s"] / other["episodes/s"] if other["episodes/s"] else None,
                **{name: theirs / ours if theirs and ours else None for name, (theirs, ours) in pairs.items()},
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=list(GAMES), default=list(GAMES))
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 32, 64, 256], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, help="medians are over these (default: 3)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load a round, about (default: 6)")
    parser.add_argument("--no-footprint", action="store_true", help="leave import times and installed sizes out")
    add_json(parser)
    options = parser.parse_args()
    many_files()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.servers, options.sessions, options.rounds, options.seconds)
    result["footprint"] = [] if options.no_footprint else footprint.run(options.rounds)
    result["ratios"] = ratios(result["rows"], result["footprint"])
    finish(result, result["rows"], options.json)
    print("ms; `first`: from connecting to the first tool's reply; medians of the rounds")
    if result["footprint"]:
        print(f"\n{table(result['footprint'])}")
    if result["ratios"]:
        print(f"\n{table(result['ratios'])}")
        print("how many times better ours is (below 1: worse); import s and MiB: of the package")


if __name__ == "__main__":
    main()
