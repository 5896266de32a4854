"""`agent-env check`: read a bundle and say what would be served, what not, and why. Runs nothing of it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator

from agent_env.bundle.model import Bundle, BundleError, BundleNotFound, EnvSpec, LeftOut
from agent_env.bundle.resolve import resolve_bundle

__all__ = ["add_arguments", "main", "report"]

_MOST_LISTED = 10
"""Left-out tasks that are named for each reason, without --all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read a bundle, list its splits, envs and scores, and the tasks that are left out. Nothing of it is run. "
        "Exits with 0 if it can be served, 1 if it has problems (each with file, place and fix), 2 if there is none."
    )
    parser.add_argument(
        "bundle", metavar="BUNDLE", help="a folder, an installed bundle's name, or hf://ORG/DATASET/PATH[@REVISION]"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a task is left out, too")
    parser.add_argument("--all", action="store_true", help=f"name every left-out task, not {_MOST_LISTED} a reason")


def main(arguments: argparse.Namespace) -> int:
    logger = logging.getLogger("agent_env.bundle")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the report says it all
    try:
        bundle = resolve_bundle(arguments.bundle)
    except BundleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, BundleNotFound) else 1
    finally:
        logger.setLevel(level)
    for line in report(bundle, everything=arguments.all):
        print(line)
    if not bundle.splits["all"].tasks:
        print(f"{bundle.name} can't be served: it has no task that can be played", file=sys.stderr)
        return 1
    return 1 if arguments.strict and bundle.left_out else 0


def report(bundle: Bundle, *, everything: bool = False) -> Iterator[str]:
    """What `agent-env check` prints of a bundle, line by line. everything: name every left-out task."""
    yield f"{bundle.name}: {bundle.description}" if bundle.description else bundle.name
    yield f"fingerprint {bundle.fingerprint}"
    yield ""
    yield "splits"
    for split in bundle.splits.values():
        yield f"  {split.name}: {_count(len(split.tasks))}"
    yield from ("", "envs") if bundle.envs else ()
    for name, env in bundle.envs.items():
        alias = f" (alias of {env.name})" if name != env.name else ""
        yield f"  {name}{alias}: {_where(env)}"
    yield from ("", "scores") if bundle.scorings else ()
    for scoring in bundle.scorings:
        reward = scoring.reward_step
        how = f"the reward is {reward}" if reward is not None else "several: the server needs reward="
        yield f"  {_count(scoring.tasks)}: {', '.join(scoring.scores)} ({how})"
    yield ""
    yield f"left out: {_count(len(bundle.left_out))}"
    for reason, tasks in _by_reason(bundle.left_out).items():
        yield f"  {reason}"
        listed = tasks if everything else tasks[:_MOST_LISTED]
        more = f", and {len(tasks) - len(listed)} more" if len(listed) < len(tasks) else ""
        yield f"    {', '.join(listed)}{more}"


def _count(number: int) -> str:
    return f"{number} task" if number == 1 else f"{number} tasks"


def _where(env: EnvSpec) -> str:
    if env.needs_docker is not None:
        return f"Docker, since {env.needs_docker}"
    return f"process, {' '.join(env.command)}"


def _by_reason(left_out: tuple[LeftOut, ...]) -> dict[str, list[str]]:
    """Task names by the reason that they share."""
    tasks: dict[str, list[str]] = {}
    for task in left_out:
        step = f" (step {task.step_id!r}, {task.step_type})" if task.step_type else ""
        tasks.setdefault(f"{task.why}{step}", []).append(task.name)
    return tasks
