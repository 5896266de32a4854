"""`agent-env compare`: the paired difference of two evaluation runs, and the tasks that changed most."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

__all__ = ["add_arguments", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.add_argument("run_a", type=Path, metavar="RUN_A", help="an `agent-env eval` run's folder")
    parser.add_argument("run_b", type=Path, metavar="RUN_B", help="another: positive differences are in its favour")
    parser.add_argument("--most", type=int, default=10, metavar="N", help="tasks to list (default: 10)")


def main(arguments: argparse.Namespace) -> int:
    """Returns 0; 1 if the runs have no scored task in common; 2 if one can't be read."""
    from agent_env.evaluate.results import ResultsError, by_task, read_results
    from agent_env.evaluate.stats import estimate, paired_difference

    try:
        runs = [read_results(path) for path in (arguments.run_a, arguments.run_b)]
    except ResultsError as error:
        print(f"agent-env compare: {error}", file=sys.stderr)
        return 2
    rewards = [
        {task: [one.reward for one in found] for task, found in by_task(one for one in run if one.scored).items()}
        for run in runs
    ]
    common = [task for task in rewards[0] if task in rewards[1]]
    if not common:
        print("agent-env compare: the runs have no scored task in common", file=sys.stderr)
        return 1
    names = {(one.split, one.index): one.task_id or f"{one.split} {one.index}" for one in runs[0]}
    for label, path, run, tasks in zip("AB", (arguments.run_a, arguments.run_b), runs, rewards, strict=True):
        failed = sum(not one.scored for one in run)
        print(f"{label}  {estimate(list(tasks.values()))}  {len(run)} episodes, {failed} failed  {path}")
    difference = paired_difference(*rewards)
    verdict = "differs from 0" if difference.low > 0 or difference.high < 0 else "is not told apart from 0"
    interval = f"[{difference.low:+.3f}, {difference.high:+.3f}]"
    print(f"B - A  {difference.mean:+.3f} {interval} over {len(common)} tasks: {verdict}")
    changes = sorted(
        ((fmean(rewards[1][task]) - fmean(rewards[0][task]), task) for task in common), key=lambda c: -abs(c[0])
    )
    for change, task in [one for one in changes if one[0]][: arguments.most]:
        print(f"  {change:+.3f}  {fmean(rewards[0][task]):.3f} -> {fmean(rewards[1][task]):.3f}  {names[task]}")
    return 0
