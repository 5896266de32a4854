"""`agent-env probe`: play a bundle's tasks with policies that know nothing and with its author's; say what is odd."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_env.extras import missing

if TYPE_CHECKING:
    from rich.console import Console

    from agent_env.authoring.findings import Finding, PolicySummary
    from agent_env.authoring.plays import Play

__all__ = ["add_arguments", "main"]

BARS = "·▁▂▃▄▅▆▇█"
BINS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.description = (
        "Plays every task with a policy that does nothing, one that does anything, and those of the bundle's "
        "oracle.py, each twice, and reports rewards, time and findings: unscored plays, one reward for everything, "
        "no-op or random scoring as high as the oracle, plays that differ, and means that aren't the documented ones. "
        "Exit codes: 0 nothing found, 1 findings, 2 it can't be probed. oracle.py is run here, in no sandbox."
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder, an installed bundle's name, or an hf:// address")
    parser.add_argument("--split", help="which tasks (default: the SPLIT of oracle.py, else all)")
    parser.add_argument("--tasks", type=int, metavar="N", help="N tasks of the split, evenly spread (default: all)")
    parser.add_argument("--plays", type=int, default=2, metavar="N", help="of each task by each policy (default: 2)")
    parser.add_argument("--concurrency", type=int, default=8, metavar="N", help="plays at once (default: %(default)s)")
    parser.add_argument(
        "--reward",
        metavar="STEP",
        help="step whose score is the reward, or `mean` of all scores (default: the REWARD of oracle.py)",
    )
    parser.add_argument("--sandbox", default="auto", help="where envs run (default: %(default)s)")
    parser.add_argument("--no-oracle", action="store_true", help="don't run the bundle's oracle.py")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every play and finding there; - is stdout")


def main(arguments: argparse.Namespace) -> int:
    """Returns 0 if nothing was found, 1 if something was, 2 if the bundle can't be probed, 130 when interrupted."""
    for name in ("tasks", "plays", "concurrency"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            return _complain(f"--{name} must be at least 1")
    if lacking := missing("fastapi", "uvicorn", "rich"):
        return _complain(lacking)
    from agent_env.authoring.oracle import OracleError
    from agent_env.bundle import BundleError
    from agent_env.sandbox.interface import SandboxError
    from agent_env.training.miles.rows import RowsError

    logger = logging.getLogger("agent_env")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the report says it all
    try:
        return asyncio.run(_probe(arguments))
    except asyncio.CancelledError:
        return 130
    except (OracleError, BundleError, SandboxError, RowsError, ValueError, RuntimeError) as error:
        return _complain(str(error))
    finally:
        logger.setLevel(level)


async def _probe(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    from agent_env.authoring.findings import find, summarize
    from agent_env.authoring.oracle import Oracle, load_oracle
    from agent_env.authoring.plays import UNTRAINED, play_all
    from agent_env.bundle.resolve import resolve_bundle

    task = asyncio.current_task()
    assert task is not None
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, task.cancel)
    bundle = resolve_bundle(arguments.bundle)
    oracle = Oracle() if arguments.no_oracle else load_oracle(bundle.folder)
    policies = {**UNTRAINED, **oracle.policies}
    split = arguments.split or oracle.split
    if split not in bundle.splits:
        raise ValueError(f"there is no split {split!r}; there are {', '.join(bundle.splits)}")
    tasks = bundle.splits[split].tasks
    count = min(arguments.tasks or len(tasks), len(tasks))
    indices = [place * len(tasks) // count for place in range(count)]
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("", total=count * len(policies) * arguments.plays)
        plays = await play_all(
            bundle,
            policies,
            split,
            indices,
            plays=arguments.plays,
            concurrency=arguments.concurrency,
            reward=arguments.reward or oracle.reward,
            sandbox=arguments.sandbox,
            on_play=lambda play: progress.advance(bar),
        )
    whole = split == oracle.split and count == len(tasks) and arguments.reward in (None, oracle.reward)
    findings = find(plays, oracle, whole=whole, replayable={index: tasks[index].replayable for index in indices})
    summaries = summarize(plays)
    if arguments.json is not None:
        _write(arguments.json, _as_json(bundle.name, plays, summaries, findings))
    if str(arguments.json) != "-":
        said = (
            f"{bundle.name}, split {split}: {count} of {len(tasks)} tasks, each {arguments.plays} times by each policy"
        )
        _report(Console(), said, summaries, findings, oracle.best)
        slowest = max(plays, key=lambda play: play.seconds)
        print(f"slowest: {slowest.task} by {slowest.policy}, {slowest.seconds:.2f} s")
    return 1 if findings else 0


def _report(
    console: Console, title: str, summaries: list[PolicySummary], findings: list[Finding], best: str | None
) -> None:
    from rich.table import Table

    low = min((summary.rewards[0] for summary in summaries if summary.rewards), default=0.0)
    high = max((summary.rewards[-1] for summary in summaries if summary.rewards), default=1.0)
    table = Table(title=title, title_justify="left")
    for name in ("policy", "mean", "least", "most", f"{min(low, 0):g} to {max(high, 1):g}"):
        table.add_column(name, no_wrap=True)
    for name in ("unscored", "errors", "s/play"):
        table.add_column(name, no_wrap=True, justify="right")
    for one in summaries:
        numbers = [one.mean, one.rewards[0], one.rewards[-1]] if one.rewards and one.mean is not None else []
        shown = [f"{number:.3f}" for number in numbers] or ["-"] * 3
        bars = _histogram(one.rewards, min(low, 0.0), max(high, 1.0))
        table.add_row(one.policy, *shown, bars, str(one.unscored), str(one.tool_errors), f"{one.seconds:.3f}")
    console.print(table)
    for finding in findings:
        console.print(str(finding), style="red", highlight=False, markup=False, soft_wrap=True)
    if best is None:
        told = "no oracle.py: with one, the probe sees whether the tasks can be solved, and whether doing nothing pays"
        console.print(told, highlight=False, soft_wrap=True)
    if not findings:
        console.print("nothing found", style="green")


def _histogram(rewards: tuple[float, ...], low: float, high: float) -> str:
    """How the rewards spread over ten equal parts of the range, as bars."""
    if not rewards:
        return ""
    counts = [0] * BINS
    for reward in rewards:
        counts[min(BINS - 1, int((reward - low) / (high - low) * BINS))] += 1
    return "".join(BARS[-(-count * (len(BARS) - 1) // max(counts))] for count in counts)


def _as_json(bundle: str, plays: list[Play], summaries: list[PolicySummary], findings: list[Finding]) -> dict[str, Any]:
    return {
        "bundle": bundle,
        "policies": {
            one.policy: {
                "mean": one.mean,
                "plays": one.plays,
                "unscored": one.unscored,
                "tool_errors": one.tool_errors,
                "median_seconds": one.seconds,
            }
            for one in summaries
        },
        "findings": [
            {"kind": one.kind, "what": one.what, "fix": one.fix, "tasks": list(one.tasks)} for one in findings
        ],
        "plays": [
            {
                "task": one.task,
                "policy": one.policy,
                "reward": one.reward,
                "scores": dict(one.scores),
                "end_reason": one.end_reason,
                "error": one.error,
                "seconds": one.seconds,
            }
            for one in plays
        ],
    }


def _write(path: Path, report: dict[str, Any]) -> None:
    text = json.dumps(report, indent=2) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        path.write_text(text, encoding="utf-8")


def _complain(message: str) -> int:
    print(f"agent-env probe: {message}", file=sys.stderr)
    return 2
