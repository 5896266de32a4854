"""`python -m agent_env.training.miles URL OUT`: write the rows that Miles trains on."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_env.training.miles.rows import Progress, RowsError, write_rows
from agent_env.training.row import ON_CALL_TIMEOUT, check_url
from agent_env.training.types import InvalidRow, ServerSettings

__all__ = ["main"]

DESCRIPTION = """\
Writes the rows of a bundle that is served at URL into the folder OUT: one JSONL file a split, a row a task. It deploys
one env for each set of tools, to list them. The rows carry all that the agent function needs, so that Miles' rollout
processes need no settings of their own."""

SETTINGS: dict[str, tuple[str, str]] = {
    "reset_timeout": ("SECONDS", "for an episode to begin: waiting for a server or for room, and the deploy"),
    "call_timeout": ("SECONDS", "for one tool call"),
    "model_timeout": ("SECONDS", "for one reply of the model"),
    "episode_timeout": ("SECONDS", "for a whole rollout; 0: no limit"),
    "max_turns": ("N", "replies of the model in a rollout; then the env is scored as it stands"),
    "max_result_chars": ("N", "characters of a tool's result; a longer one loses its middle"),
    "max_invalid_calls": ("N", "invalid tool calls in a row that end a rollout, scored; 0: no limit"),
    "recover": ("N", "how often a rollout may replace a lost env, by replaying its calls in a fresh one"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 2 for anything that kept the rows from being written, 130 or 143 when stopped."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    arguments = _parser().parse_args(argv)
    try:
        settings, token = _settings(arguments)
        names = asyncio.run(_write(settings, arguments.out, token, arguments.timeout))
    except (RowsError, InvalidRow) as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return 130
    except asyncio.CancelledError:
        return 143
    finally:
        if sys.stderr.isatty():
            print(end="\r\x1b[K", file=sys.stderr, flush=True)
    print(f"wrote {', '.join(names)} to {arguments.out}")
    return 0


async def _write(settings: ServerSettings, out: Path, token: str | None, timeout: float) -> list[str]:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await write_rows(settings, out, token=token, timeout=timeout, progress=_progress())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m agent_env.training.miles", description=DESCRIPTION)
    parser.add_argument("url", metavar="URL", help="the server's address; several equal servers with commas between")
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write to: new, empty, or with older rows")
    parser.add_argument(
        "--token-var",
        metavar="VAR",
        help="the environment variable that holds the server's token; rows name the variable, never the token",
    )
    parser.add_argument(
        "--url-var",
        metavar="VAR",
        help="an environment variable that, where it is set when a rollout starts, replaces the rows' URL",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=300.0,
        help="for each request of this command, and for listing one set of tools (default: 300)",
    )
    group = parser.add_argument_group("settings that the rows carry")
    defaults = {field.name: field.default for field in dataclasses.fields(ServerSettings)}
    for name, (unit, text) in SETTINGS.items():
        default: Any = defaults[name]
        least = 0 if name in ("episode_timeout", "recover", "max_invalid_calls") else 1
        group.add_argument(
            f"--{name.replace('_', '-')}",
            metavar=unit,
            type=_seconds_or_none if name == "episode_timeout" else _seconds if unit == "SECONDS" else _count(least),
            default=default,
            help=f"{text} (default: {default:g})",
        )
    group.add_argument(
        "--on-call-timeout",
        choices=ON_CALL_TIMEOUT,
        default="fail",
        help="what a tool call that misses its deadline means: fail the rollout, since the env is at fault; or score "
        "the env as it stands, where a policy can make a call hang (default: fail)",
    )
    return parser


def _settings(arguments: argparse.Namespace) -> tuple[ServerSettings, str | None]:
    """Raises RowsError, InvalidRow."""
    urls = tuple(check_url(url.strip()) for url in arguments.url.split(","))
    if len(set(urls)) != len(urls):
        raise RowsError("URL names a server twice")
    for option in ("token_var", "url_var"):
        name = getattr(arguments, option)
        if name is not None and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise RowsError(f"--{option.replace('_', '-')} takes the name of an environment variable")
    token = None
    if arguments.token_var is not None:
        token = os.environ.get(arguments.token_var, "").strip()
        if not token:
            state = "empty" if arguments.token_var in os.environ else "not set"
            raise RowsError(
                f"the environment variable {arguments.token_var} is {state}: it must hold the server's token"
            )
    chosen = {name: getattr(arguments, name) for name in SETTINGS}
    settings = ServerSettings(
        urls=urls,
        token_var=arguments.token_var,
        url_var=arguments.url_var,
        on_call_timeout=arguments.on_call_timeout,
        **chosen,
    )
    return settings, token


def _progress() -> Progress:
    """Shows what is done on stderr once it takes a while: on a terminal in one line, else a line every 5 s."""
    terminal = sys.stderr.isatty()
    every = 0.2 if terminal else 5.0
    last = time.monotonic() + (0.3 if terminal else 0.0)

    def show(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            print(f"\r\x1b[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)

    return show


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _seconds(text: str) -> float:
    value = _seconds_or_none(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return value


def _seconds_or_none(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _count(least: int) -> Any:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
        return int(text)

    return convert


if __name__ == "__main__":
    sys.exit(main())
