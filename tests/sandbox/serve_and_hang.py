"""A server to be killed: deploys envs that resist, prints the processes below it, and waits. Run by a test."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from agent_env.sandbox.owners import this_owner
from agent_env.sandbox.process import ProcessSandbox
from tests.sandbox.doubles import PROBE, descendants, run, write_env

STUBBORN = """
import os, signal, time
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
try:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
except OSError:
    pass  # a tier that lets nobody start processes
"""


async def main(tier: str, folder: str, count: int, wait: float) -> None:
    box = ProcessSandbox(tier=tier)
    env = write_env(Path(folder), PROBE)
    await box.prepare(env)
    envs = await asyncio.gather(*(box.deploy(env, episode_id=str(number)) for number in range(count)))
    await asyncio.gather(*(run(each, STUBBORN) for each in envs))
    more = asyncio.gather(*(box.deploy(env, episode_id="more") for _ in range(4)))  # some are under way
    await asyncio.sleep(wait)
    told = {"before": descendants(), "owner": str(this_owner()), "sweeper": box._sweeper and box._sweeper.pid}
    print(json.dumps(told), flush=True)
    await more
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
