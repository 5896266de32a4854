"""The row writer as a command, and the rows that it wrote."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.miles.doubles import TaskServer


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


async def run(*arguments: str) -> Ran:
    """The command, in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agent_env.training.miles", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


async def write(server: TaskServer, out: Path, *options: str) -> Ran:
    async with server.serve():
        return await run(*options, server.url, str(out))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]
