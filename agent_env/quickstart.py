"""`agent-env quickstart`: GridSim end to end on this machine, with scripted policies for a model.

It serves the bundle, writes its rows with the writer, plays groups of rollouts through the agent function as Miles
does, against the session server's stand-in, and applies the reward hook and the filter. It needs no GPU, no Docker and
no network, and leaves nothing behind, however it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from agent_env.extras import missing
from agent_env.sandbox.interface import SandboxError
from agent_env.training.policies import POLICIES, read_day
from agent_env.training.rehearsal import Group, Hooks, Rehearsal, read_rows

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Result", "add_arguments", "main", "play", "result_of"]

BUNDLE = "gridsim-v1"
PLAYED = ("idle", "greedy", "optimum", "malformed")
DURATIONS = (1, 2, 4)
PHASES = ("wait", "deploy", "model", "tool", "score", "total")
EVAL_DAYS = 200


@dataclass(frozen=True, slots=True)
class Result:
    """How one policy did."""

    policy: str
    seconds: float
    rewards: tuple[float, ...]
    """Of every rollout; a failed one's is 0."""
    by_duration: dict[int, float]
    """Mean reward by the hours that the day's battery lasts at full power."""
    kept: int
    groups: int
    failures: Counter[str]
    """Rollouts that were not scored, by `end reason: error`."""
    warnings: tuple[str, ...]
    """What the session server found amiss in the agent function's requests."""
    phases: dict[str, float]
    """Median seconds of a rollout by phase."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.add_argument("--days", type=int, default=24, help=f"eval days to play, 1 to {EVAL_DAYS} (default: 24)")
    parser.add_argument("--group", type=int, default=8, help="rollouts of each day (default: 8)")
    parser.add_argument("--concurrency", type=int, default=32, help="rollouts at once (default: 32)")


def main(arguments: argparse.Namespace) -> int:
    """Play and print the table. Returns 0; 1 if a group was lost or nothing could be played; 2 for
    wrong usage; 143 when terminated."""
    for name in ("days", "group", "concurrency"):
        if getattr(arguments, name) < 1:
            return _complain(f"--{name} must be at least 1")
    if lacking := missing("fastapi", "uvicorn", "rich"):
        return _complain(lacking)
    from rich.console import Console

    console = Console()
    # The folder's owner is this frame, not the event loop, so that any number of interrupts unwinds it.
    with tempfile.TemporaryDirectory(prefix="agent-env-quickstart-") as folder:
        try:
            results = asyncio.run(_quickstart(console, Path(folder), arguments))
        except asyncio.CancelledError:
            return 128 + signal.SIGTERM
        except (SandboxError, RuntimeError) as error:
            return _complain(str(error), 1)
    return _report(console, results)


def _complain(message: str, code: int = 2) -> int:
    print(f"agent-env quickstart: {message}", file=sys.stderr)
    return code


async def _quickstart(console: Console, folder: Path, arguments: argparse.Namespace) -> list[Result]:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for name in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, task.cancel)

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from agent_env.loopback import serving
    from agent_env.openenv import build_app
    from agent_env.training.session_server.app import build_session_app
    from agent_env.training.session_server.engines import ScriptedEngine

    bar = Progress(
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("groups"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    engines = {name: ScriptedEngine(POLICIES[name]) for name in PLAYED}
    app = build_app(BUNDLE, max_concurrent_envs=arguments.concurrency)
    async with (
        serving(app) as url,
        serving(build_session_app(engines)) as session_url,
    ):
        _say(
            console,
            f"serving {BUNDLE} on {url}, each env in a sandbox of its own ({app.state.status()['tier']['name']})",
        )
        _say(console, f"serving scripted policies on {session_url}, in place of Miles' session server")
        _say(console, await _write_rows(url, folder / "data"))
        rows = read_rows(folder / "data" / "eval.jsonl")[: arguments.days]
        results = []
        with bar:
            for policy in PLAYED:
                line = bar.add_task(policy, total=len(rows))
                results.append(
                    await play(
                        policy,
                        rows,
                        session_url,
                        group_size=arguments.group,
                        concurrency=arguments.concurrency,
                        on_group=lambda group, line=line: bar.advance(line),  # type: ignore[misc]
                    )
                )
    return results


async def _write_rows(url: str, folder: Path) -> str:
    """Run the row writer, as a user would; returns what it printed. Raises RuntimeError if it failed."""
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agent_env.training.miles", url, str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await writer.communicate()
    finally:
        if writer.returncode is None:
            writer.kill()
            await writer.wait()
    if writer.returncode != 0:
        raise RuntimeError(f"the row writer failed: {err.decode().strip()}")
    return out.decode().strip()


async def play(
    policy: str,
    rows: Sequence[dict[str, Any]],
    session_url: str,
    *,
    group_size: int = 8,
    concurrency: int = 32,
    on_group: Callable[[Group], None] = lambda group: None,
) -> Result:
    """Play the rows with a policy of the session server's, through the hooks that Miles' flags name."""
    from agent_env.training.miles import agent

    hooks = Hooks(run=agent.run, reward=agent.reward, keep=agent.keep_scored_groups)
    started = time.perf_counter()
    async with Rehearsal(
        hooks, session_url, policy=policy, group_size=group_size, concurrency=concurrency
    ) as rehearsal:
        groups = await rehearsal.play(rows, on_group)
    return result_of(policy, groups, time.perf_counter() - started)


def result_of(policy: str, groups: Sequence[Group], seconds: float) -> Result:
    """Sum up what was played. Group by group, the first user message tells the day."""
    failures: Counter[str] = Counter()
    warnings: list[str] = []
    phases: dict[str, list[float]] = {}
    by_duration: dict[int, list[float]] = {}
    for group in groups:
        prompt = next(message["content"] for message in group.samples[0].prompt if message["role"] == "user")
        rewards = by_duration.setdefault(read_day(prompt).duration, [])
        for sample in group.samples:
            rewards.append(float(sample.reward or 0.0))
            warnings += sample.warnings
            told = sample.metadata.get("agentenv", {})
            if told.get("status") != "scored":
                failures[
                    f"{told.get('end_reason', 'no chat turn')}: {told.get('error', 'the session recorded none')}"
                ] += 1
            for phase, spent in told.get("seconds", {}).items():
                phases.setdefault(phase, []).append(spent)
    return Result(
        policy=policy,
        seconds=seconds,
        rewards=tuple(reward for rewards in by_duration.values() for reward in rewards),
        by_duration={duration: mean(rewards) for duration, rewards in by_duration.items()},
        kept=sum(group.kept for group in groups),
        groups=len(groups),
        failures=failures,
        warnings=tuple(warnings),
        phases={phase: median(spent) for phase, spent in phases.items()},
    )


def _report(console: Console, results: Sequence[Result]) -> int:
    from rich.table import Table

    table = Table(title="mean reward by policy: all days, and by battery duration", title_justify="left")
    for title in ("policy", "all", *(f"{hours}h" for hours in DURATIONS), "kept", "rollouts/s", "seconds"):
        table.add_column(title, justify="left" if title == "policy" else "right")
    for result in results:
        by_duration = [result.by_duration.get(hours) for hours in DURATIONS]
        table.add_row(
            result.policy,
            f"{mean(result.rewards):.3f}",
            *("-" if reward is None else f"{reward:.3f}" for reward in by_duration),
            f"{result.kept}/{result.groups}",
            f"{len(result.rewards) / result.seconds:.0f}",
            f"{result.seconds:.1f}",
        )
    console.print(table)
    episodes = sum(len(result.rewards) for result in results)
    phases = ", ".join(f"{phase} {results[-1].phases.get(phase, 0.0) * 1000:.0f} ms" for phase in PHASES)
    _say(console, f"{episodes} episodes; the last policy's median: {phases}")
    lost = False
    for result in results:
        for failure, count in result.failures.most_common(5):
            _say(console, f"{result.policy}: {count} rollouts failed: {failure}", "red")
        for warning in result.warnings[:5]:
            _say(console, f"{result.policy}: the session server found: {warning}", "red")
        lost |= result.kept < result.groups or bool(result.warnings)
    return 1 if lost else 0


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
