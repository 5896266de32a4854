"""`agent-env doctor`: the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from agent_env.doctor.finding import Finding, Level, fail
from agent_env.doctor.host import env_host, trainer_host

__all__ = ["add_arguments", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.description = (
        "Checks what training needs. With URL or --rows: this host as one that trains, and the server as it is seen "
        "from here. Without: this host as one that runs envs. Exit codes: 0 nothing failed, 1 something did, 2 usage."
    )
    parser.add_argument("url", nargs="?", metavar="URL", help="the env server, as http://envs.internal:8200")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="a rows file: its server and bundle, and one row played"
    )
    parser.add_argument("--token-var", metavar="VAR", help="variable that holds the token (default: the rows' own)")
    parser.add_argument("--rollouts", type=int, default=32, metavar="N", help="rollouts at once (default: %(default)s)")


def main(arguments: argparse.Namespace) -> int:
    """Print a line a check. Returns 0, 1 if a check failed, 2 for wrong usage."""
    try:
        row = _first_row(arguments.rows) if arguments.rows else None
    except ValueError as error:
        print(f"agent-env doctor: {error}", file=sys.stderr)
        return 2
    return asyncio.run(_run(arguments, row))


async def _run(arguments: argparse.Namespace, row: Mapping[str, Any] | None) -> int:
    worst = 0
    async for finding in _findings(arguments, row):
        print(finding, flush=True)
        worst |= finding.level is Level.FAIL
    return worst


async def _findings(arguments: argparse.Namespace, row: Mapping[str, Any] | None) -> AsyncIterator[Finding]:
    server = row["metadata"]["server"] if row else {}
    urls = [arguments.url] if arguments.url else list(server.get("urls") or [])
    broken = False
    for finding in trainer_host(arguments.rollouts):
        broken |= finding.what.startswith("missing packages")
        yield finding
    if broken:
        return
    if not urls:
        async for finding in env_host():
            yield finding
        return
    variable = arguments.token_var or server.get("token_var")
    token = os.environ.get(variable, "").strip() if variable else None
    if variable and not token:
        yield fail(
            f"the environment variable {variable} is not set here, or empty",
            "it must hold the server's token, and be set where Miles' Ray workers start",
        )
        return
    from agent_env.doctor.server import check_server

    for url in urls:
        async for finding in check_server(url, token, row, arguments.rollouts):
            yield finding


def _first_row(path: Path) -> dict[str, Any]:
    """Raises ValueError for a file that isn't one of rows."""
    try:
        with path.open(encoding="utf-8") as file:
            row = json.loads(file.readline())
        if not isinstance(row["metadata"]["server"], dict):
            raise TypeError
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: not a rows file: write one with python -m agent_env.training.miles") from None
    found: dict[str, Any] = row
    return found
