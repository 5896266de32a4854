"""Episodes a second and latencies of our server, beside the official OpenEnv server and agentenv-framework's.

    python benchmarks/openenv.py                              # 1, 32, 64 and 256 sessions
    python benchmarks/openenv.py --sessions 32 --rounds 5 --servers ours official

Ours plays GridSim: each episode in a sandboxed env of its own, and scored by a verifier in another sandbox. The
official server's env is an object in its own process that echoes; the framework's bundle has no tool at all. Each round
plays all servers, one right after the other, so that a noisy machine is unfair to all alike: compare ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from common import add_json, finish, machine, many_files, median, ours, served, theirs
from driver import ECHO, GRIDSIM, HELLO, Game, Report, play

GAMES: dict[str, Game] = {"ours": GRIDSIM, "official": ECHO, "framework": HELLO}
MOST_SESSIONS = {"framework": 64}
"""Beyond, its resets take minutes."""


def episodes_of(name: str, sessions: int, seconds: float) -> int:
    """Enough for the given seconds, about, and for every session to play."""
    guess = {"ours": 60.0, "official": 40.0, "framework": 1.3}[name]
    return max(sessions, int(guess * seconds))


def measure(name: str, sessions: int, seconds: float) -> tuple[Report, Report]:
    """A throw-away round that warms the server up, then one that counts."""
    room = 2 * sessions + 8  # a connection that closes still holds its slot for a moment
    command = ours(room) if name == "ours" else theirs(name, room)
    with served(command) as (url, _):
        warm = asyncio.run(play(url, GAMES[name], sessions=min(sessions, 4), episodes=4 if name != "framework" else 1))
        return warm, asyncio.run(
            play(url, GAMES[name], sessions=sessions, episodes=episodes_of(name, sessions, seconds))
        )


def row(name: str, sessions: int, reports: list[Report]) -> dict[str, Any]:
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
    }


def run(servers: list[str], sessions: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for count in sessions:
        names = [name for name in servers if count <= MOST_SESSIONS.get(name, count)]
        reports: dict[str, list[Report]] = {name: [] for name in names}
        for _ in range(rounds):
            for name in names:
                report = measure(name, count, seconds)[1]
                reports[name].append(report)
                for end, times in report.ended.items():
                    if end != "ok":
                        print(f"{name}, {count} sessions: {times} times {end}", file=sys.stderr)
        rows += [row(name, count, reports[name]) for name in names]
    for one in rows:
        mine = next((r for r in rows if r["server"] == "ours" and r["sessions"] == one["sessions"]), None)
        one["ours/it"] = round(mine["episodes/s"] / one["episodes/s"], 2) if mine and one["episodes/s"] else None
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", nargs="+", choices=list(GAMES), default=list(GAMES))
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 32, 64, 256], metavar="N")
    parser.add_argument("--rounds", type=int, default=3, help="medians are over these (default: 3)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of load a round, about (default: 6)")
    add_json(parser)
    options = parser.parse_args()
    many_files()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.servers, options.sessions, options.rounds, options.seconds)
    finish(result, result["rows"], options.json)
    print("ms; `first`: from connecting to the first tool's reply; medians of the rounds")


if __name__ == "__main__":
    main()
