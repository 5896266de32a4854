from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.process import ProcessSandbox
from tests.sandbox.doubles import PROBE, write_env


@pytest.fixture
async def sandbox() -> AsyncIterator[ProcessSandbox]:
    box = ProcessSandbox(tier="namespaces")
    await box.start()
    try:
        yield box
    finally:
        await box.close()


@pytest.fixture
def probe(tmp_path: Path) -> EnvSpec:
    return write_env(tmp_path / "probe", PROBE)
