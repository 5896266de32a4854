"""The `agent-env` command: each subcommand lives in a module of its own, loaded when it is called."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from agent_env import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "quickstart": ("agent_env.quickstart", "play GridSim end to end on this machine: serve, write rows, play, filter"),
    "check": ("agent_env.bundle.check", "read a bundle: what is served, what is left out, and what to mend"),
    "new": ("agent_env.authoring.new", "make a bundle that runs, to write your own from"),
    "play": ("agent_env.authoring.play", "play a bundle's task yourself, in the terminal"),
    "probe": ("agent_env.authoring.probe", "play a bundle with scripted policies, and report what is wrong with it"),
    "serve": ("agent_env.openenv.serve", "serve a bundle over OpenEnv"),
    "session-server": ("agent_env.training.session_server", "a local stand-in for Miles' session server"),
    "sandboxes": (
        "agent_env.sandbox.sandboxes",
        "list the sandboxes on this machine; --prune removes dead owners' ones",
    ),
    "eval": ("agent_env.evaluate.command", "play a split against a model, and report rewards, failures and time"),
    "compare": ("agent_env.evaluate.compare", "the paired difference of two evaluation runs"),
    "trace": ("agent_env.monitor.trace_command", "show an episode's trace"),
    "doctor": ("agent_env.doctor.command", "preflight: this host, the env server as seen from here, one row played"),
}
"""Name -> module with `add_arguments(parser)` and `main(arguments) -> exit code`, and one line of help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit codes: 0 done, 1 findings or failure, 2 wrong usage, 130 interrupted."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="agent-env", description="Serve agent environments to RL trainers.")
    parser.add_argument("--version", action="version", version=f"agent-env {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if argv[:1] == [name]:
            importlib.import_module(module).add_arguments(command)
    arguments = parser.parse_args(argv)
    try:
        result: int = importlib.import_module(COMMANDS[arguments.command][0]).main(arguments)
    except KeyboardInterrupt:
        return 130
    return result


if __name__ == "__main__":
    sys.exit(main())
