"""How long an env takes from being asked for to its first tool reply, by the way it is started; and what many cost.

    python benchmarks/deploy.py                          # GridSim: plain subprocess, fork server, Landlock tier
    python benchmarks/deploy.py --docker                 # and Docker, cold and warm (DOCKER_HOST is honoured)
    python benchmarks/deploy.py --live 64 256 1000       # and memory, call times and tear-down of that many live envs
    python benchmarks/deploy.py --docker --docker-live 64 --image agentenv-python:local    # without a registry

Ways are interleaved round by round, so that a noisy machine is unfair to all alike: compare the ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from common import on_image

from agent_env.bundle import load_bundle
from agent_env.bundle.model import EnvSpec
from agent_env.episode.env_client import EnvClient
from agent_env.sandbox import EnvInstance, EnvLost, Sandbox
from agent_env.sandbox.pool import WarmPool
from agent_env.sandbox.process import ProcessSandbox

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 8
SAMPLED = 40
POOL_PAUSE = 0.5
"""Seconds between two deploys from the warm pool: time to refill, which takes the engine 0.3 to 0.5 s."""


class PlainEnv(EnvInstance):
    """The reference: `python server.py` on a port of this machine, with no walls and nothing shared."""

    def __init__(self, env: EnvSpec, process: asyncio.subprocess.Process, port: int) -> None:
        self.env = env
        self.id = f"plain-{process.pid}"
        self._process = process
        self._port = port

    @classmethod
    async def start(cls, env: EnvSpec) -> PlainEnv:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, *env.command[1:]],
            cwd=env.folder,
            env={**os.environ, **env.environ, "MCP_HOST": "127.0.0.1", "MCP_PORT": str(port)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return cls(env, process, port)

    async def connect(self) -> socket.socket:
        while self._process.returncode is None:
            sock = socket.socket()
            sock.setblocking(False)
            try:
                await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._port))
            except ConnectionRefusedError:
                sock.close()
                await asyncio.sleep(0.002)
            else:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return sock
        raise EnvLost(f"exit status {self._process.returncode}")

    async def wait(self) -> str:
        return f"exit status {await self._process.wait()}"

    @property
    def output(self) -> str:
        return ""

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


Deploy = Callable[[], Coroutine[Any, Any, EnvInstance]]


async def first_reply(instance: EnvInstance, tool: str) -> EnvClient:
    client = EnvClient(instance)
    await client.call_tool(tool, {})  # an error is a reply too
    return client


async def timed(deploy: Deploy, tool: str) -> tuple[float, float]:
    """Seconds to the first tool reply, and to be gone."""
    begun = time.perf_counter()
    instance = await deploy()
    try:
        client = await first_reply(instance, tool)
        up = time.perf_counter()
        client.close()
    finally:
        ending = time.perf_counter()
        await instance.kill()
    return up - begun, time.perf_counter() - ending


async def latencies(ways: dict[str, Deploy], tool: str, rounds: int) -> list[dict[str, Any]]:
    up: dict[str, list[float]] = {name: [] for name in ways}
    down: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, deploy in ways.items():
            if name == "docker, warm":
                await asyncio.sleep(POOL_PAUSE)
            seconds, gone = await timed(deploy, tool)
            up[name].append(seconds)
            down[name].append(gone)
    return [{"way": name, "n": rounds, **spread("ms", up[name]), **spread("kill_ms", down[name])} for name in ways]


def spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p95, in ms."""
    ordered = sorted(1000 * value for value in seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {f"p50_{name}": round(statistics.median(ordered), 2), f"p95_{name}": round(p95, 2)}


async def live(env: EnvSpec, tool: str, count: int, sandbox: Sandbox) -> dict[str, Any]:
    """That many at once: each deployed, asked once more when all are up, and torn down with the sandbox, not started
    yet. Containers are no processes of ours: of their memory, what was available tells."""
    await sandbox.start()
    try:
        await sandbox.prepare(env)
        shared = set(processes())
        before, begun = available(), time.perf_counter()
        slots = asyncio.Semaphore(AT_ONCE)

        async def up(number: int) -> EnvClient:
            async with slots:
                return await first_reply(await sandbox.deploy(env, episode_id=str(number)), tool)

        clients = await asyncio.gather(*(up(number) for number in range(count)))
        seconds = time.perf_counter() - begun
        asked = []
        for client in clients:
            start = time.perf_counter()
            await client.call_tool(tool, {})
            asked.append(time.perf_counter() - start)
        taken = before - available()
        pids = [pid for pid in processes() if pid not in shared]
        step = max(1, len(pids) // SAMPLED // 2)
        sample = [memory(pid) for pid in pids[::step]]
        per_env = len(pids) / count / len(sample) if isinstance(sandbox, ProcessSandbox) else None
        for client in clients:
            client.close()
        ending = time.perf_counter()
    finally:
        await sandbox.close()
    return {
        "way": "process" if isinstance(sandbox, ProcessSandbox) else "docker",
        "live": count,
        "up_s": round(seconds, 2),
        "down_s": round(time.perf_counter() - ending, 2),
        **spread("call_ms", asked),
        "private_mib": per_env and round(per_env * sum(private for private, _ in sample), 2),
        "pss_mib": per_env and round(per_env * sum(pss for _, pss in sample), 2),
        "available_mib": round(taken / count, 2),
    }


def processes() -> list[int]:
    """All below this one."""
    found, stack = [], [os.getpid()]
    while stack:
        pid = stack.pop()
        try:
            children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            continue
        found += children
        stack += children
    return found


def memory(pid: int) -> tuple[float, float]:
    """Private and proportional memory, MiB."""
    private = pss = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, *rest = line.split()
        if name in ("Private_Clean:", "Private_Dirty:"):
            private += int(rest[0])
        elif name == "Pss:":
            pss = int(rest[0])
    return private / 1024, pss / 1024


def available() -> float:
    """MiB of memory that the machine can still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1024


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """`folder`: an empty one."""
    bundle = load_bundle(arguments.bundle)
    env = bundle.envs[arguments.env] if arguments.env else next(iter(bundle.envs.values()))
    image = on_image(env, arguments.image, folder) if arguments.image else env
    boxes: dict[str, Sandbox] = {}
    result: dict[str, Any] = {"env": env.name, "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
    try:
        boxes["fork server"] = ProcessSandbox(tier="namespaces")
        boxes["fork server, landlock"] = ProcessSandbox(tier="landlock")
        if arguments.docker:
            from agent_env.sandbox.docker import DockerSandbox

            boxes["docker, cold"] = DockerSandbox()
            boxes["docker, warm"] = WarmPool(DockerSandbox(), warm={env.name: 4})
        ways: dict[str, Deploy] = {"plain subprocess": lambda: PlainEnv.start(env)}
        for name, box in boxes.items():
            await box.start()
            begun = time.perf_counter()
            spec = image if name.startswith("docker") else env
            await box.prepare(spec)
            result.setdefault("prepare_s", {})[name] = round(time.perf_counter() - begun, 2)
            ways[name] = deployer(box, spec)
        trial = await ways["fork server"]()
        try:
            tool = (await EnvClient(trial).list_tools())[0].name
        finally:
            await trial.kill()
        result["deploy"] = await latencies(ways, tool, arguments.rounds)
    finally:
        for box in boxes.values():
            await box.close()
    result["live"] = [await live(env, tool, count, ProcessSandbox()) for count in arguments.live]
    if arguments.docker_live:
        from agent_env.sandbox.docker import DockerSandbox

        for count in arguments.docker_live:
            result["live"].append(await live(image, tool, count, DockerSandbox(warm_verifiers=0)))
    return result


def deployer(box: Sandbox, env: EnvSpec) -> Deploy:
    return lambda: box.deploy(env, episode_id="bench")


def show(result: dict[str, Any]) -> None:
    print(f"env {result['env']}, {result['cpus']} cores, load {result['load']:.1f}; ms are p50 / p95")
    base = result["deploy"][0]["p50_ms"]
    for row in result["deploy"]:
        print(
            f"  {row['way']:24s} n={row['n']:<4d} first reply {row['p50_ms']:7.1f} / {row['p95_ms']:7.1f}"
            f"   kill {row['p50_kill_ms']:6.1f} / {row['p95_kill_ms']:6.1f}   {base / row['p50_ms']:5.1f}x"
        )
    for row in result["live"]:
        processes = f"{row['private_mib']} private, {row['pss_mib']} PSS, " if row["private_mib"] else ""
        print(
            f"  {row['live']:5d} live, {row['way']}: up in {row['up_s']} s, down in {row['down_s']} s, MiB each: "
            f"{processes}{row['available_mib']} of what was available; "
            f"a call {row['p50_call_ms']} / {row['p95_call_ms']} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", default=str(ROOT / "bundles" / "gridsim-v1"), help="a bundle's folder")
    parser.add_argument("--env", help="the env's name; the bundle's first if not given")
    parser.add_argument("--rounds", type=int, default=50, help="deploys of each way (50)")
    parser.add_argument(
        "--live", type=int, nargs="*", default=[], metavar="N", help="how many at once, e.g. 64 256 1000"
    )
    parser.add_argument("--docker", action="store_true", help="measure Docker as well")
    parser.add_argument("--docker-live", type=int, nargs="*", default=[], metavar="N", help="the same in containers")
    parser.add_argument("--image", help="make the env's image of this one, with Python, not as its Dockerfile says")
    parser.add_argument("--json", metavar="FILE", help="write the result there, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = asyncio.run(measure(arguments, Path(folder)))
    show(result)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
