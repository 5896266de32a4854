"""How soon nothing is left of a server that is killed hard (SIGKILL) with many envs live.

    python benchmarks/kill.py                                            # processes: 20 kills, 64 GridSim envs each
    python benchmarks/kill.py --docker --image agentenv-python:local     # containers (DOCKER_HOST is honoured)

Each kill has a server of its own, which is killed at a random moment while its envs are called. `processes` is the time
from the server's end until none of its envs' processes runs; `everything` until all that it had is gone: containers,
mounts, cgroups, sockets and folders, and the process that removes them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common import GRIDSIM, ROOT, add_json, finish, machine, median, on_image, processes

sys.path.insert(0, str(ROOT))  # what a server leaves is looked for as the tests do
from agent_env.bundle import load_bundle
from agent_env.episode.env_client import EnvClient
from agent_env.sandbox import Sandbox
from agent_env.sandbox.process.sweeper import NAME as SWEEPER
from tests.docker.traces import Traces, running

LONGEST = 1.0
"""Seconds of work before a kill."""
GIVE_UP = 60.0
EVERY = 0.02
"""Seconds between two looks."""
DOCKER_EVERY = 0.1
"""So, where a look costs the engine something."""


async def serve(image: str | None, count: int) -> None:
    """The server: that many envs live, a line that says so, and calls without end."""
    from agent_env.sandbox.owners import this_owner

    env = next(iter(load_bundle(GRIDSIM).envs.values()))
    with ExitStack() as stack:
        box: Sandbox
        if image is None:
            from agent_env.sandbox.process import ProcessSandbox

            box = ProcessSandbox()
        else:
            from agent_env.sandbox.docker import DockerSandbox

            env = on_image(env, image, Path(stack.enter_context(tempfile.TemporaryDirectory())))
            box = DockerSandbox(warm_verifiers=0)
        await box.start()
        await box.prepare(env)
        instances = [await box.deploy(env, episode_id="e0")]
    instances += await asyncio.gather(*(box.deploy(env, episode_id=f"e{number}") for number in range(1, count)))
    clients = [EnvClient(instance) for instance in instances]
    tool = (await clients[0].list_tools())[0].name
    print(json.dumps({"owner": str(this_owner())}), flush=True)
    while True:
        await random.choice(clients).call_tool(tool, {})  # an error is a reply too


def sweeping(pid: int) -> bool:
    try:
        return SWEEPER in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def folders(owner: str) -> list[str]:
    """Cgroups and temporary folders of a server without containers."""
    found = [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.endswith(f"/agent-env/{owner}")]
    return found + [str(path) for path in Path(tempfile.gettempdir()).glob(f"agent-env-tmp.{owner}")]


def kill(image: str | None, live: int, moment: float) -> tuple[float, float]:
    """Seconds until no process is left, and nothing at all."""
    command = [sys.executable, __file__, "--serve", str(live), *(["--image", image] if image else [])]
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        owner: str = json.loads(server.stdout.readline())["owner"]
        time.sleep(moment)
        left: Callable[[], list[Any]]
        if image is None:
            every = processes(server.pid)
            pids = [pid for pid in every if not sweeping(pid)]
            left = lambda: [pid for pid in every if running(pid)] or folders(owner)  # noqa: E731
        else:
            import docker

            engine = docker.from_env(timeout=60).api
            traces = Traces.of(engine, owner)
            pids = list(traces.processes)
            left = lambda: traces.left(engine)  # noqa: E731
        if len(pids) < live:
            raise RuntimeError(f"{len(pids)} processes for {live} envs")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    began = time.monotonic()
    _wait(lambda: not any(running(pid) for pid in pids), EVERY)
    ended = time.monotonic() - began
    _wait(lambda: not left(), DOCKER_EVERY if image else EVERY)
    return ended, time.monotonic() - began


def _wait(gone: Callable[[], bool], every: float) -> None:
    give_up = time.monotonic() + GIVE_UP
    while not gone():
        if time.monotonic() > give_up:
            raise RuntimeError(f"something is left after {GIVE_UP:g} s")
        time.sleep(every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", type=int, default=64, help="envs of each server (64)")
    parser.add_argument("--kills", type=int, default=20, help="how many servers are killed (20)")
    parser.add_argument("--docker", action="store_true", help="in containers, not processes")
    parser.add_argument("--image", help="what containers are made of, with Python; it must be on the engine")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    add_json(parser)
    arguments = parser.parse_args()
    if arguments.docker and not arguments.image:
        parser.error("--docker needs --image, such as the one that scripts/docker_engine.sh makes")
    if arguments.serve:
        asyncio.run(serve(arguments.image, arguments.serve))
        return
    about = machine()
    image = arguments.image if arguments.docker else None
    seed = random.randrange(10**6)
    points = random.Random(seed)
    found = [kill(image, arguments.live, points.uniform(0, LONGEST)) for _ in range(arguments.kills)]
    ended, everything = [one for one, _ in found], [last for _, last in found]
    row: dict[str, Any] = {
        "way": "docker" if arguments.docker else "process",
        "live": arguments.live,
        "kills": len(found),
        "processes p50, s": median(ended),
        "worst": max(ended),
        "everything p50, s": median(everything),
        "worst of it": max(everything),
    }
    finish({"machine": about, "seed": seed, "rows": [row], "seconds": found}, [row], arguments.json)


if __name__ == "__main__":
    main()
