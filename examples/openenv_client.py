#!/usr/bin/env python3
"""An episode with OpenEnv's own client, for a trainer that has its own loop: waits for room by trying again.

    agent-env serve gridsim-v1
    python examples/openenv_client.py http://127.0.0.1:8200 0

A full server answers CAPACITY_REACHED; clients of OpenEnv raise it as RuntimeError. (Sessions opened with
`/ws?wait=SECONDS` queue at the server instead, first come, first served.) Needs `pip install openenv`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

from openenv.core import GenericEnvClient


async def play(url: str, index: int, *, patience: float = 1800.0) -> float:
    """Play one eval day, idling; returns the reward. `patience`: seconds to wait for room."""
    deadline = time.monotonic() + patience
    while True:
        try:
            async with GenericEnvClient(base_url=url, message_timeout_s=1200.0) as env:
                return await episode(env, index)
        except RuntimeError as error:
            if "CAPACITY_REACHED" not in str(error) or time.monotonic() > deadline:
                raise
        await asyncio.sleep(random.uniform(1.0, 5.0))


async def episode(env: Any, index: int) -> float:
    await env.reset(split="eval", index=index)
    for tool, arguments in (("submit_schedule", {"schedule": [0] * 24}), ("end_turn", {"response": "done"})):
        result = await env.step({"type": "call_tool", "tool_name": tool, "arguments": arguments})
    if result.reward is None:
        raise ValueError(f"the episode ended without a reward: {result.observation}")
    return float(result.reward)


if __name__ == "__main__":
    print(asyncio.run(play(sys.argv[1], int(sys.argv[2]))))
