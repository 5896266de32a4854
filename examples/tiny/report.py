"""What a run came to, from hooks.py's record and Miles' log.

    python report.py run OUT > results/seed1.json              # one run's numbers
    python report.py table results/*.json                      # as Markdown
    python report.py rule results/*.json                       # the last evals against the fixed-hours rule, by day
    python report.py plot results/*.json > results/reward.svg  # the eval reward of every run, with intervals

Needs the standard library alone; `rule` needs agent-env too, whose bundle has the rule.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import NormalDist, fmean, median, stdev
from typing import Any

CLOCK_RULE = 0.581
"""What the bundle's rule that knows the hour, but no price, scores on the eval days."""

ENV_PHASES = ("wait", "deploy", "tool", "score")
Z = NormalDist().inv_cdf(0.975)
Run = dict[str, Any]


def interval(by_day: Iterable[list[float]]) -> tuple[float, float, float]:
    """(mean, low, high), 95 %: of the days' means, since samples of one day are no independent draws."""
    means = [fmean(rewards) for rewards in by_day]
    half = Z * stdev(means) / len(means) ** 0.5
    return fmean(means), fmean(means) - half, fmean(means) + half


# ---- one run ---------------------------------------------------------------------------------------------------------


def read_run(out: Path) -> Run:
    """One run's numbers: what is committed of it."""
    lines = [json.loads(line) for line in (out / "record.jsonl").read_text(encoding="utf-8").splitlines()]
    durations = [_duration(line) for line in (out / "data" / "eval.jsonl").read_text(encoding="utf-8").splitlines()]
    evals, steps = [], []
    for line in lines:
        if line["kind"] == "eval":
            evals.append(_eval(line, len(durations), first=not evals))
        else:
            steps.append(_step(line))
    logged = _logged(out / "miles.log", len(steps))
    for step in steps:
        step |= logged.get(step["step"], {})
    return {"durations": durations, "evals": evals, "steps": steps}


def _eval(line: dict[str, Any], days: int, *, first: bool) -> dict[str, Any]:
    """Miles evaluates before step 0, then after steps, under their number. A sample that Miles lost has no index and
    counts for no day."""
    by_day: list[list[float]] = [[] for _ in range(days)]
    for rollout in line["rollouts"]:
        if rollout["index"] is not None:
            by_day[rollout["index"]].append(round(rollout["reward"] or 0.0, 4))
    return {"after_steps": 0 if first else line["step"] + 1, "rewards": by_day, **_told(line["rollouts"])}


def _step(line: dict[str, Any]) -> dict[str, Any]:
    rewards = [rollout["reward"] for rollout in line["rollouts"]]
    env = [sum(rollout["seconds"].get(phase, 0.0) for phase in ENV_PHASES) for rollout in line["rollouts"]]
    return {
        "step": line["step"],
        "reward": round(fmean(rewards), 4),
        "seconds_rollout": round(line["rollout_seconds"], 3),
        "seconds_env": round(fmean(env), 4),
        "seconds_env_max": round(max(env), 4),
        "drops": line["drops"],
        **_told(line["rollouts"]),
    }


def _told(rollouts: list[dict[str, Any]]) -> dict[str, Any]:
    calls = sum(rollout["tool_calls"] for rollout in rollouts)
    phases: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        for phase, seconds in rollout["seconds"].items():
            phases[phase].append(seconds)
    return {
        "rollouts": len(rollouts),
        "zeros": round(fmean(not rollout["reward"] for rollout in rollouts), 4),
        "ends": dict(Counter(str(rollout["end"]) for rollout in rollouts)),
        "tool_calls": calls,
        "invalid_arguments": sum(rollout["invalid_arguments"] for rollout in rollouts),
        "tool_errors": sum(rollout["tool_errors"] for rollout in rollouts),
        "tokens": round(fmean(rollout["tokens"] for rollout in rollouts), 1),
        "seconds": {phase: round(fmean(seconds), 5) for phase, seconds in phases.items()},
    }


def _duration(row: str) -> int:
    found = re.search(r"duration: (\d+) h", json.loads(row)["messages"][-1]["content"])
    assert found is not None
    return int(found[1])


def _logged(path: Path, steps: int) -> dict[int, dict[str, float]]:
    """What Miles' log tells of each step: its seconds, and how far engine and trainer are apart in log probability.

    Under "step" Miles counts updates, of which a step may have several: the first of a step stands for it."""
    wanted = {
        "perf/step_time": "seconds_step",
        "perf/train_time": "seconds_train",
        "perf/update_weights_time": "seconds_weights",
        "train/train_rollout_logprob_abs_diff": "logprob_diff",
        "train/grad_norm": "grad_norm",
        "rollout/entropy": "entropy",
    }
    found: dict[str, dict[int, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = re.search(r"\b(perf|step|rollout) (\d+): (\{.*\})", line)
        if match is None:
            continue
        try:
            metrics = ast.literal_eval(re.sub(r"\bnan\b", "None", match[3]))
        except (ValueError, SyntaxError):
            continue
        for name, short in wanted.items():
            if isinstance(metrics.get(name), int | float):
                found[match[1]][int(match[2])][short] = round(metrics[name], 5)
    updates = found.pop("step", {})
    each = -(-(max(updates, default=0) + 1) // max(steps, 1))
    merged = {step: dict(updates.get(step * each, {})) for step in range(steps)}
    for kind in found.values():
        for step, metrics in kind.items():
            merged.setdefault(step, {}).update(metrics)
    return merged


# ---- several ---------------------------------------------------------------------------------------------------------


def table(runs: dict[str, Run]) -> str:
    """Two tables in Markdown: what the evals gave, and where a step's time went."""
    lines = [
        "| run | steps | eval reward | 95 % | 1 h | 2 h | 4 h | scored 0 | invalid arguments |",
        "|" + " --- |" * 9,
    ]
    for name, run in runs.items():
        lines += [_row(name, *_eval_cells(run["durations"], one)) for one in run["evals"]]
    lines += ["", "| run | first to last eval, by day | 95 % |", "|" + " --- |" * 3]
    for name, run in runs.items():
        if len(run["evals"]) > 1:
            mean, low, high = risen(run)
            lines.append(_row(name, f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"))
    heads = (
        "run",
        "a step, s",
        "rollouts",
        "training",
        "weights",
        "env, per rollout",
        "of the step",
        "groups left out",
    )
    lines += ["", _row(*heads), "|" + " --- |" * len(heads)]
    lines += [_row(name, *_step_cells(run["steps"])) for name, run in runs.items() if run["steps"]]
    return "\n".join(lines)


def risen(run: Run) -> tuple[float, float, float]:
    """(mean, low, high) of the days' differences between the last eval and the first."""
    pairs = zip(run["evals"][0]["rewards"], run["evals"][-1]["rewards"], strict=True)
    return interval([fmean(last) - fmean(first)] for first, last in pairs if first and last)


def above_rule(runs: dict[str, Run]) -> str:
    """A table in Markdown: the days' differences between the last eval and the rule that knows no price."""
    bundle = Path(__file__).resolve().parents[2] / "bundles" / "gridsim-v1"
    sys.path.insert(0, str(bundle))
    from baselines import clock, days, grade

    rule = [grade(day, clock(day)) for day in days("eval")]
    lines = ["| run | over the fixed hours, by day | 95 % |", "|" + " --- |" * 3]
    for name, run in runs.items():
        pairs = zip(run["evals"][-1]["rewards"], rule, strict=True)
        mean, low, high = interval([fmean(rewards) - score] for rewards, score in pairs if rewards)
        lines.append(_row(name, f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}"))
    return "\n".join(lines)


def _eval_cells(durations: list[int], one: dict[str, Any]) -> list[str]:
    mean, low, high = interval(rewards for rewards in one["rewards"] if rewards)
    parts = []
    for wanted in (1, 2, 4):
        pairs = zip(durations, one["rewards"], strict=True)
        parts.append(f"{fmean(fmean(rewards) for size, rewards in pairs if size == wanted and rewards):.3f}")
    invalid = one["invalid_arguments"] / max(1, one["tool_calls"])
    cells = [str(one["after_steps"]), f"{mean:.3f}", f"{low:.3f} to {high:.3f}", *parts]
    return [*cells, f"{100 * one['zeros']:.1f} %", f"{100 * invalid:.1f} %"]


def _step_cells(steps: list[dict[str, Any]]) -> list[str]:
    later = steps[1:] or steps  # the first compiles kernels

    def middle(key: str) -> float:
        return median(step[key] for step in later if key in step)

    drops: Counter[str] = Counter()
    for step in steps:
        drops.update({cause.rpartition("/")[2]: count for cause, count in step["drops"].items()})
    cells = [f"{middle(f'seconds_{part}'):.2f}" for part in ("step", "rollout", "train", "weights")]
    env = middle("seconds_env")
    cells += [f"{1000 * env:.0f} ms", f"{100 * env / middle('seconds_step'):.1f} %"]
    return [*cells, ", ".join(f"{cause} {count:g}" for cause, count in drops.items()) or "none"]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


COLOURS = ("#1b6ca8", "#c2571a", "#2f8f4e", "#7a4fa3", "#a33b57", "#5f6b76")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 56, 44, 20, 150


def plot(runs: dict[str, Run]) -> str:
    """The eval reward over the steps as SVG: a line a run, a bar a 95 % interval, the fixed-hours rule dashed."""
    last = max(one["after_steps"] for run in runs.values() for one in run["evals"]) or 1
    low, high = 0.0, 0.9

    def x(step: float) -> float:
        return LEFT + step / last * (WIDTH - LEFT - RIGHT)

    def y(reward: float) -> float:
        return HEIGHT - BOTTOM - (reward - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tenth in range(10):
        at = y(tenth / 10)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e3e6e8"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    for step in sorted({one["after_steps"] for run in runs.values() for one in run["evals"]}):
        parts.append(f'<text x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    parts.append(f'<text x="{x(last / 2):.1f}" y="{HEIGHT - 8}" text-anchor="middle">GRPO steps</text>')
    rule = y(CLOCK_RULE)
    parts.append(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{rule:.1f}" y2="{rule:.1f}" stroke="#555" stroke-dasharray="5 4"/>'
        f'<text x="{WIDTH - RIGHT + 6}" y="{rule + 4:.1f}" fill="#555">fixed hours {CLOCK_RULE}</text>'
    )
    for number, (name, run) in enumerate(runs.items()):
        colour, shift = COLOURS[number % len(COLOURS)], 3 * (number - (len(runs) - 1) / 2)
        points = [(x(one["after_steps"]) + shift, interval(filter(None, one["rewards"]))) for one in run["evals"]]
        path = " ".join(f"{at:.1f},{y(mean):.1f}" for at, (mean, _, _) in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for at, (mean, below, above) in points:
            parts.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y(below):.1f}" y2="{y(above):.1f}" stroke="{colour}"/>'
            )
            parts.append(f'<circle cx="{at:.1f}" cy="{y(mean):.1f}" r="3" fill="{colour}"/>')
        at = TOP + 16 * number + 6
        parts.append(f'<rect x="{WIDTH - RIGHT + 6}" y="{at - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 22}" y="{at}">{name}</text>')
    return "\n".join([*parts, "</svg>"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table", "rule", "plot"))
    parser.add_argument("paths", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "run":
        json.dump(read_run(arguments.paths[0]), sys.stdout, separators=(",", ":"))
        print()
        return
    runs = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in arguments.paths}
    print({"table": table, "rule": above_rule, "plot": plot}[arguments.what](runs))


if __name__ == "__main__":
    main()
