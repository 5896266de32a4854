"""A hostile env and a neighbour, in each tier of the process sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import EnvInstance, Limits
from agent_env.sandbox.process import ProcessSandbox
from tests.sandbox.doubles import PROBE, descendants, gone, run, write_env

LIMITS = Limits(memory_mib=256, processes=24, cpu_seconds=60, tmp_mib=16, open_files=64, output_kib=16)


@dataclass
class Arena:
    sandbox: ProcessSandbox
    spec: EnvSpec
    env: EnvInstance
    neighbour: EnvInstance

    @property
    def tier(self) -> str:
        return self.sandbox.tier.name


@pytest.fixture(params=["namespaces", "landlock"])
async def arena(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Arena]:
    """`env` is the test's to attack from; at the end its neighbour, up all the while, must still answer, the attacker
    must be gone when it's killed, and nothing may be left."""
    monkeypatch.setattr("agent_env.sandbox.process.rehearsal._SECONDS", 1.0)  # for envs that answer nothing
    box = ProcessSandbox(LIMITS, per_env={"burner": Limits(cpu_seconds=2, memory_mib=256)}, tier=request.param)
    spec = write_env(tmp_path / "probe", PROBE)
    try:
        await box.start()
        neighbour = await box.deploy(spec, episode_id="neighbour")
        await run(neighbour, "kept = 'mine'")
        env = await box.deploy(spec, episode_id="attacker")
        yield Arena(box, spec, env, neighbour)
        assert await asyncio.wait_for(run(neighbour, "value = kept"), 10) == "mine"
        await asyncio.wait_for(env.kill(), 5)
        assert await asyncio.wait_for(run(neighbour, "value = kept"), 10) == "mine"
    finally:
        before = descendants()
        await box.close()
    assert await gone(before) == set()
