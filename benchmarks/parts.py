"""Where an episode's CPU time goes: the server, the env's process, the verifier's, the fork servers, the kernel.

    python benchmarks/parts.py                      # one GridSim episode after the other, then 32 at once
    python benchmarks/parts.py --sessions 8 --episodes 1000

User and kernel time as the kernel accounts it, in ms an episode. `machine` is all that the cores did meanwhile, less
the driver: what it has beyond the sum of the others is the kernel's own workers (they take network namespaces down) and
whatever else runs on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from common import add_json, finish, machine, many_files, ours, processes, served
from driver import GRIDSIM, play

TICK = 1000 / os.sysconf("SC_CLK_TCK")
"""Milliseconds."""

Times = tuple[float, float]
"""User and kernel, in ms."""


def times_of(pid: int | str, *, children: bool = False) -> Times:
    """Of a process; or of those that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    user, kernel = fields[13:15] if children else fields[11:13]
    return TICK * int(user), TICK * int(kernel)


def machine_times() -> Times:
    user, nice, kernel, _, _, irq, softirq, *_ = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return TICK * (int(user) + int(nice)), TICK * (int(kernel) + int(irq) + int(softirq))


class Roles:
    """Which process forks envs, and which verifiers: seen by what their children are called."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.found: dict[int, str] = {}

    def __enter__(self) -> Roles:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            for pid in processes(self._server):
                try:
                    name = Path(f"/proc/{pid}/comm").read_text()
                    parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
                except OSError:
                    continue
                if name.startswith(("env-", "verifier-")):
                    self.found[parent] = name.partition("-")[0]


def measure(sessions: int, episodes: int) -> list[dict[str, Any]]:
    with served(ours(2 * sessions + 8)) as (url, server):
        with Roles(server) as roles:
            asyncio.run(play(url, GRIDSIM, sessions=min(4, sessions), episodes=40))
        time.sleep(1)
        before = snapshot(server, roles.found)
        report = asyncio.run(play(url, GRIDSIM, sessions=sessions, episodes=episodes))
        after = snapshot(server, roles.found)
    if report.ended["ok"] != episodes:
        raise RuntimeError(f"not all episodes were scored: {dict(report.ended)}")
    rows = []
    for part in after:
        user, kernel = ((now - then) / episodes for now, then in zip(after[part], before[part], strict=True))
        rows.append(
            {
                "sessions": sessions,
                "part": part,
                "ms": round(user + kernel, 2),
                "user": round(user, 2),
                "kernel": round(kernel, 2),
                "episodes/s": round(report.rate, 1),
            }
        )
    return rows


def snapshot(server: int, roles: dict[int, str]) -> dict[str, Times]:
    parts: dict[str, list[Times]] = defaultdict(list)
    parts["server"].append(times_of(server))
    for role in ("env", "verifier"):
        parts[f"{role}'s process"] += [times_of(pid, children=True) for pid, of in roles.items() if of == role]
    parts["fork servers"] += [times_of(pid) for pid in roles]
    sums = {part: (sum(user for user, _ in times), sum(kernel for _, kernel in times)) for part, times in parts.items()}
    own, whole = times_of("self"), machine_times()
    return {**sums, "machine": (whole[0] - own[0], whole[1] - own[1])}


def run(sessions: list[int], episodes: int) -> list[dict[str, Any]]:
    return [row for count in sessions for row in measure(count, episodes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 32], metavar="N")
    parser.add_argument("--episodes", type=int, default=400, metavar="N", help="of each (default: 400)")
    add_json(parser)
    options = parser.parse_args()
    many_files()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.sessions, options.episodes)
    finish(result, result["rows"], options.json)


if __name__ == "__main__":
    main()
