"""An env that adds, and that can be slow, random or mortal when told to."""

import asyncio
import os
import random
import time
from typing import Any

from agent_env.env import Env, extension, serve, tool


class Fragile(Env):
    """An adding env for fault tests."""

    name = "fragile"

    def __init__(self) -> None:
        self.score_seconds = 0.0
        self.reset_data()

    @extension("urn:fragile:settings/v1")
    def settings(self, deploy_seconds: float = 0.0, score_seconds: float = 0.0) -> None:
        """How long the deploy takes from here, and the verifier."""
        self.score_seconds = score_seconds
        time.sleep(deploy_seconds)

    @tool
    def add(self, x: int) -> str:
        """Add x to the total."""
        self.total += x
        return f"total {self.total}"

    @tool
    async def slow_add(self, x: int, seconds: float) -> str:
        """Add x to the total after some seconds."""
        await asyncio.sleep(seconds)
        return self.add(x)

    @tool
    def dice(self) -> str:
        """Throw a die of a billion sides."""
        return str(random.SystemRandom().randrange(10**9))

    @tool
    def die(self) -> str:
        """End the env's process."""
        os._exit(1)

    def reset_data(self) -> None:
        """Begin at 0."""
        self.total = 0

    def get_data(self) -> dict[str, Any]:
        """For the verifier."""
        return {"total": self.total, "score_seconds": self.score_seconds}


if __name__ == "__main__":
    serve(Fragile)
