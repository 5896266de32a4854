"""A server to be killed: `python victim.py ENV_FOLDER COUNT` deploys so many envs, tells a line of JSON, and waits.

With COUNT negative it never stops deploying and killing: there is no quiet moment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.owners import this_owner
from tests.docker.envs import PROBE, make_env, run_inside

STUBBORN = """
import os, signal, sys, time
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    time.sleep(99999)
"""


async def main(folder: str, count: int) -> None:
    env = make_env(Path(folder), PROBE, name="probe")
    box = DockerSandbox(warm_verifiers=1)
    await box.start()
    instances = await asyncio.gather(*(box.deploy(env, episode_id=f"e{number}") for number in range(abs(count))))
    for instance in instances[:4]:
        task = asyncio.create_task(run_inside(instance, STUBBORN.replace("import", "import threading,", 1)))
        await asyncio.wait([task], timeout=1)
    print(json.dumps({"owner": str(this_owner()), "janitor": box._janitor.pid}), flush=True)
    while count < 0:
        victim = instances.pop(0)
        added, _ = await asyncio.gather(box.deploy(env, episode_id="again"), victim.kill())
        instances.append(added)
    await asyncio.sleep(1000)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
