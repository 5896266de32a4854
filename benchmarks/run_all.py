"""Every benchmark, and the goals: what was aimed at, what was measured, and the ratio to the reference of the same run.

python benchmarks/run_all.py                  # some ten minutes on two cores, after the environments are built
python benchmarks/run_all.py --quick          # fewer rounds; no crowd of a thousand
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import footprint
import live
import openenv
import rows as rows_benchmark
import trainer
from common import add_json, finish, machine, many_files

Rows = list[dict[str, Any]]


def goal(what: str, aim: str, measured: float | None, met: bool, reference: float | None = None) -> dict[str, Any]:
    ratio = None if reference is None or not measured else reference / measured
    return {
        "what": what,
        "goal": aim,
        "measured": measured,
        "reference": reference,
        "ratio": ratio,
        "met": "yes" if met else "NO",
    }


def find(found: Rows, **keys: Any) -> dict[str, Any]:
    return next(row for row in found if all(row[name] == value for name, value in keys.items()))


def goals_of_servers(found: Rows) -> Rows:
    ours, official = (find(found, server=name, sessions=32) for name in ("ours", "official"))
    framework = find(found, server="framework", sessions=32)
    alone, official_alone = (find(found, server=name, sessions=1) for name in ("ours", "official"))
    fast, fast_alone = (find(found, server="ours, FastMCP env", sessions=count) for count in (32, 1))
    framework_alone = find(found, server="framework", sessions=1)
    rate, theirs, other = ours["episodes/s"], official["episodes/s"], framework["episodes/s"]
    return [
        goal("episodes/s, 32 sessions (reference: official)", "> reference", rate, rate > theirs, theirs)
        | {"ratio": rate / theirs},
        goal("episodes/s, 32 sessions (reference: framework)", "> 50 x", rate, rate > 50 * other, other)
        | {"ratio": rate / other},
        goal(
            "ms to the first tool call, 1 session (framework's reset)",
            "< 20",
            alone["first p50"],
            alone["first p50"] < 20,
            framework_alone["reset p50"],
        ),
        goal(
            "ms a tool call, 1 session (official)",
            "< 2",
            alone["call p50"],
            alone["call p50"] < 2,
            official_alone["call p50"],
        ),
        goal(
            "the same, FastMCP env (official, no isolation)",
            "< 6",
            fast_alone["call p50"],
            fast_alone["call p50"] < 6,
            official_alone["call p50"],
        ),
        goal("MiB a session, FastMCP env, 32 live", "<= 22", fast["MiB/session"], fast["MiB/session"] <= 22),
    ]


def goals_of_crowds(found: Rows) -> Rows:
    most = found[-1]
    count = most["live"]
    return [
        goal(f"episodes scored of {count} live", f"{count}", most["scored"], most["scored"] == count),
        goal(f"MiB each, {count} live", "<= 4", most["MiB each"], most["MiB each"] <= 4),
        goal(f"ms a tool call, p99, {count} live", "< 250", most["call p99"], most["call p99"] < 250),
    ]


def goals_of_trainer(found: Rows) -> Rows:
    few, many = found[0], found[-1]
    count = many["rollouts"]
    return [
        goal("CPU ms of the agent function a turn", "< 1", few["CPU ms/turn"], few["CPU ms/turn"] < 1),
        goal(f"rollouts scored of {count} at once", f"{count}", many["scored"], many["scored"] == count),
    ]


def goals_of_footprint(found: Rows) -> Rows:
    server, agent, official, _ = found
    goals = []
    for what, row, seconds, size in (("server", server, 1.0, 100), ("agent function", agent, 0.3, 60)):
        goals.append(
            goal(f"import s, {what} (official)", f"< {seconds:g}", row["import s"], row["import s"] < seconds)
            | {"reference": official["import s"], "ratio": official["import s"] / row["import s"]}
        )
        goals.append(
            goal(f"installed MiB, {what} (official)", f"< {size}", row["MiB"], row["MiB"] < size, official["MiB"])
        )
    return goals


def goals_of_rows(found: Rows) -> Rows:
    fewer, most = found[-2], found[-1]
    grown = most["writer peak MiB"] - fewer["writer peak MiB"]
    return [
        goal(f"s to write {most['tasks']} rows", "< 20", most["write s"], most["write s"] < 20),
        goal(f"MiB more of the writer than for {fewer['tasks']}", "< 20", round(grown, 1), grown < 20),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and 256 live episodes at most")
    add_json(parser)
    options = parser.parse_args()
    many_files()
    quick = options.quick
    servers, sessions = list(openenv.GAMES), [1, 32] if quick else [1, 32, 64, 256]
    parts: dict[str, tuple[Callable[[], Rows], Callable[[Rows], Rows]]] = {
        "servers": (
            lambda: openenv.run(servers, sessions, 1 if quick else 3, 4.0),
            goals_of_servers,
        ),
        "crowds": (lambda: live.run([64, 256] if quick else [64, 256, 1000], 3, 5.0), goals_of_crowds),
        "trainer": (lambda: trainer.run([64, 256] if quick else [64, 1024], 3), goals_of_trainer),
        "rows": (lambda: rows_benchmark.run([200, 2000] if quick else [200, 2000, 20000]), goals_of_rows),
        "footprint": (lambda: footprint.run(3 if quick else 5), goals_of_footprint),
    }
    result: dict[str, Any] = {"machine": machine()}
    goals: Rows = []
    for name, (run, judge) in parts.items():
        begun = time.perf_counter()
        result[name] = run()
        goals += judge(result[name])
        print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    result["goals"] = goals
    finish(result, goals, options.json)


if __name__ == "__main__":
    main()
