"""A server with many envs at work is killed at random moments: nothing is left. `benchmarks/kill.py` has the times."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox.docker import DockerSandbox

from .test_kill import Victim, wait_until_gone
from .traces import Traces, left, running

pytestmark = [pytest.mark.docker, pytest.mark.soak, pytest.mark.timeout(900)]

KILLS = 20
LIVE = 64
LONGEST = 1.0
"""Seconds of work before a kill: some deploys, ends and verifications, and many calls."""


def test_server_killed_at_random_points_with_64_envs_live_leaves_nothing(engine: Any, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    points = random.Random(seed)
    times = []
    victims = []
    for number in range(1, KILLS + 1):
        moment = points.uniform(0, LONGEST)
        victim = Victim(tmp_path / "env", -LIVE)
        try:
            time.sleep(moment)
            traces = Traces.of(engine, victim.owner)
        finally:
            victim.kill()
        began = time.monotonic()
        assert len(traces.containers) >= LIVE
        assert len(traces.processes) >= 3 * LIVE, "each has an init, a server and a process that it left behind"
        wait_until_gone(traces.processes_left)
        processes = time.monotonic() - began
        wait_until_gone(lambda traces=traces: traces.left(engine))  # type: ignore[misc]
        times.append(time.monotonic() - began)
        victims.append(victim)
        print(
            f"kill {number} after {moment:.2f} s with {len(traces.containers)} containers: {len(traces.processes)} "
            f"processes gone in {processes:.2f} s, everything in {times[-1]:.2f} s"
        )
    print(f"everything gone: median {statistics.median(times):.2f} s, worst {max(times):.2f} s")
    wait_until_gone(lambda: [victim.janitor for victim in victims if running(victim.janitor)])
    assert [thing for victim in victims for thing in left(engine, victim.owner)] == [], "nothing came up afterwards"


async def test_what_a_killed_janitor_of_64_envs_could_not_remove_goes_at_the_next_start(
    engine: Any, tmp_path: Path
) -> None:
    victim = await asyncio.to_thread(Victim, tmp_path / "env", -LIVE)
    try:
        traces = await asyncio.to_thread(Traces.of, engine, victim.owner)
    finally:
        os.kill(victim.janitor, signal.SIGKILL)
        victim.kill()
    assert len(await asyncio.to_thread(left, engine, victim.owner)) >= LIVE
    began = time.monotonic()
    box = DockerSandbox(warm_verifiers=0)
    await box.start()
    try:
        print(f"{len(traces.containers)} containers of a dead server removed in {time.monotonic() - began:.2f} s")
        await asyncio.to_thread(wait_until_gone, lambda: traces.left(engine))
    finally:
        await box.close()
