"""What is left when the server is killed hard: nothing, and what others hold is untouched."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.cli import main as cli
from agent_env.sandbox import DeployFailed, sandboxes
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.docker.options import ENV_LABEL, OWNER_LABEL
from agent_env.sandbox.docker.processes import kill_processes
from agent_env.sandbox.owners import owner_state, this_owner

from .envs import PROBE, make_env
from .traces import Traces, left, running, with_descendants

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
GONE = 10.0
"""Seconds: what is checked is that all goes, without a restart. `benchmarks/kill.py` measures how long it takes."""


class Victim:
    """A server in a process of its own."""

    def __init__(self, folder: Path, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.docker.victim", str(folder), str(count)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.owner: str = told["owner"]
        self.janitor: int = told["janitor"]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start_victim(engine: Any, tmp_path: Path) -> Iterator[Callable[[int], Victim]]:
    victims: list[Victim] = []

    def start(count: int) -> Victim:
        victims.append(Victim(tmp_path / "env", count))
        return victims[-1]

    yield start
    for victim in victims:
        victim.kill()


def wait_until_gone(look: Callable[[], list[Any]]) -> None:
    give_up = time.monotonic() + GONE
    while remaining := look():
        assert time.monotonic() < give_up, remaining
        time.sleep(0.1)


def test_server_killed_hard_leaves_nothing_though_its_envs_ignore_every_signal(
    engine: Any, start_victim: Callable[[int], Victim]
) -> None:
    victim, neighbour = start_victim(8), start_victim(1)
    pids, others = Traces.of(engine, victim.owner).processes, Traces.of(engine, neighbour.owner).processes
    assert len(pids) > 8
    victim.kill()
    wait_until_gone(lambda: [pid for pid in pids if running(pid)])
    wait_until_gone(lambda: left(engine, victim.owner))
    wait_until_gone(lambda: [victim.janitor] if running(victim.janitor) else [])
    assert len(left(engine, neighbour.owner)) == 3, "an env, a verifier and a folder of a server that lives"
    assert others
    assert all(running(pid) for pid in others)


async def test_processes_of_the_named_containers_end_and_no_others(
    engine: Any, start_victim: Callable[[int], Victim]
) -> None:
    victim = start_victim(2)
    env, other = engine.containers(filters={"label": [f"{OWNER_LABEL}={victim.owner}", f"{ENV_LABEL}=probe"]})[:2]
    ended = with_descendants(engine.inspect_container(env["Id"])["State"]["Pid"])
    assert len(ended) >= 2
    assert kill_processes({env["Id"]}) >= 1, "the kernel ends the rest with the first"
    wait_until_gone(lambda: [pid for pid in ended if running(pid)])
    assert running(engine.inspect_container(other["Id"])["State"]["Pid"])
    assert kill_processes(set()) == 0


async def test_what_a_killed_janitor_could_not_remove_goes_at_the_next_start_and_no_more(
    engine: Any, start_victim: Callable[[int], Victim]
) -> None:
    victim, neighbour = start_victim(3), start_victim(1)
    engine.create_network("by-hand", labels={"made": "by hand"})
    engine.create_network("network-of-victim", labels={OWNER_LABEL: victim.owner})
    engine.create_network("of-elsewhere", labels={OWNER_LABEL: "1-2-boot-3-otherhost"})
    try:
        os.kill(victim.janitor, signal.SIGKILL)
        victim.kill()
        assert owner_state(victim.owner) == "dead"
        assert len(left(engine, victim.owner)) >= 5
        box = DockerSandbox()
        await box.start()
        await box.close()
        assert left(engine, victim.owner) == []
        assert len(left(engine, neighbour.owner)) == 3
        names = {network["Name"] for network in engine.networks()}
        assert {"by-hand", "of-elsewhere"} <= names
    finally:
        engine.remove_network("by-hand")
        engine.remove_network("of-elsewhere")


def test_command_lists_by_owner_and_prunes_only_the_dead(
    engine: Any,
    start_victim: Callable[[int], Victim],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sandboxes, "CGROUPS", tmp_path)  # those of other servers on this machine are none of this test
    monkeypatch.setattr(sandboxes, "TMP_PREFIX", "none-")
    victim, neighbour = start_victim(2), start_victim(1)
    os.kill(victim.janitor, signal.SIGKILL)
    victim.kill()
    assert cli(["sandboxes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    dead = [line for line in lines if f"{victim.process.pid}  dead " in line]
    alive = [line for line in lines if f"{neighbour.process.pid}  alive " in line]
    assert len([line for line in dead if " container " in line]) >= 2
    assert any(" e0 Up" in line for line in alive)
    assert cli(["sandboxes", "--prune"]) == 0
    assert f"removed {len(dead)} of {len(dead)} left by owners that are dead" in capsys.readouterr().out
    assert left(engine, victim.owner) == []
    assert len(left(engine, neighbour.owner)) == 3


async def test_close_leaves_nothing_with_episodes_live_and_starts_under_way(engine: Any, tmp_path: Path) -> None:
    env = make_env(tmp_path / "env", PROBE, name="probe")
    box = DockerSandbox(warm_verifiers=1)
    await box.start()
    await box.deploy(env, episode_id="live")
    starting = [asyncio.create_task(box.deploy(env, episode_id=str(number))) for number in range(6)]
    await asyncio.sleep(0.3)
    await box.close()
    await asyncio.wait(starting)
    assert left(engine, str(this_owner())) == []
    assert all(isinstance(task.exception(), DeployFailed) for task in starting)
