"""All of it once more for a server that is an ordinary user, and then in user namespaces."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]  # both folders once more: minutes

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user already: the other tests are this one")
@pytest.mark.parametrize("what", ["sandbox", "hostile"])
async def test_an_ordinary_user_gets_the_same_walls(what: str) -> None:
    folder = f"/tmp/agent-env-test-{os.getpid()}-{what}"
    process = await asyncio.create_subprocess_exec(
        *[
            sys.executable,
            "-m",
            "tests.sandbox.as_ordinary_user",
            "-q",
            "-m",
            "integration and not soak",
            f"tests/{what}",
        ],
        *["--basetemp", folder],
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(output.decode())
    assert process.returncode == 0, output.decode()[-4000:]
