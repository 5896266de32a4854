"""`agent-env play`: a person plays one task in the terminal, in the model's place."""

from __future__ import annotations

import argparse
import sys

from agent_env.extras import missing

__all__ = ["add_arguments", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.description = (
        "Plays one task by hand: its prompts are shown as a model gets them, tools are called with forms made from "
        "their schemas or as `TOOL {JSON}`, end_turn goes on, and the score comes last. Lines may be piped in. Exit "
        "codes: 0 scored, 1 the episode failed, 2 it can't be played, 130 left."
    )
    parser.add_argument("bundle", metavar="BUNDLE", help="a folder, an installed bundle's name, or an hf:// address")
    parser.add_argument("--task", metavar="NAME", help="which task (default: the first)")
    parser.add_argument(
        "--reward", metavar="STEP", help="step whose score is the reward, or `mean` (default: the task's, else mean)"
    )
    parser.add_argument("--sandbox", default="auto", help="where envs run (default: %(default)s)")


def main(arguments: argparse.Namespace) -> int:
    """Returns 0 if it was scored, 1 if the episode failed, 2 if the task can't be played, 130 if it was left."""
    if lacking := missing("rich"):
        print(f"agent-env play: {lacking}", file=sys.stderr)
        return 2
    from agent_env.authoring.table import CannotPlay, Table, find_task
    from agent_env.authoring.terminal import Terminal
    from agent_env.bundle import BundleError
    from agent_env.bundle.resolve import resolve_bundle
    from agent_env.episode import EpisodeFailed
    from agent_env.sandbox.interface import SandboxError

    try:
        bundle = resolve_bundle(arguments.bundle)
        task = find_task(bundle, arguments.task)
        with Table(task, bundle, arguments.sandbox, arguments.reward) as table:
            return Terminal().play(table)
    except EpisodeFailed as failed:
        print(f"agent-env play: the episode failed ({failed.reason}): {failed}", file=sys.stderr)
        return 1
    except (BundleError, SandboxError, CannotPlay) as error:
        print(f"agent-env play: {error}", file=sys.stderr)
        return 2
    except (EOFError, KeyboardInterrupt):
        print("\nleft; nothing was scored", file=sys.stderr)
        return 130
