"""A server to be killed: `python victim.py ENV_FOLDER COUNT` deploys so many envs, tells a line of JSON, and waits.

With COUNT negative there is no quiet moment: all the time an env is deployed and another ended, others are called, and
one is verified.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import EnvInstance, Verification
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.interface import SandboxError
from agent_env.sandbox.owners import this_owner
from tests.docker.envs import PROBE, STUBBORN, make_env, request, run_inside

RESIST = """
import os, signal, sys, threading, time
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(99999)
"""

VERIFY = """
import asyncio
async def verify(mcp_url):
    await asyncio.sleep(0.2)
    return []
"""


async def main(folder: str, count: int) -> None:
    box = DockerSandbox(warm_verifiers=1)
    await box.start()
    env = make_env(Path(folder), STUBBORN if count < 0 else PROBE, name="stubborn" if count < 0 else "probe")
    instances = [await box.deploy(env, episode_id="e0")]  # finds out for the others how such an env is reached
    more = (box.deploy(env, episode_id=f"e{number}") for number in range(1, abs(count)))
    instances += await asyncio.gather(*more)
    for instance in instances[: max(0, min(4, count))]:
        task = asyncio.create_task(run_inside(instance, RESIST))
        await asyncio.wait([task], timeout=1)
    work = [churn(box, env, instances), call(instances), call(instances), verify(box, env, instances)]
    working = asyncio.gather(*work) if count < 0 else asyncio.sleep(1000)
    await asyncio.sleep(0)
    print(json.dumps({"owner": str(this_owner()), "janitor": box._janitor.pid}), flush=True)
    await working


async def churn(box: DockerSandbox, env: EnvSpec, instances: list[EnvInstance]) -> None:
    while True:
        instances.append(await box.deploy(env, episode_id="again"))
        await instances.pop(0).kill()


async def call(instances: list[EnvInstance]) -> None:
    while True:
        try:
            await request(random.choice(instances), "GET", "/")
        except (SandboxError, ConnectionError):
            pass  # it was ended just now


async def verify(box: DockerSandbox, env: EnvSpec, instances: list[EnvInstance]) -> None:
    while True:
        await box.verify(env, Verification(VERIFY, "verify.py"), random.choice(instances).connect)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
