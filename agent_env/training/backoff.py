"""How long to wait before trying again, and before failing again.

A trainer that refills dropped groups draws new rows at once and for ever. When every rollout fails of one cause (a dead
server, a wrong token), each failing one is held for a while before it is reported, so that the run waits for its
operator instead of spinning through the data.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator

from agent_env.training.notices import Notices
from agent_env.training.types import EndReason, RolloutResult, Status

__all__ = ["FailureBrake", "delays"]


def delays(first: float, cap: float) -> Iterator[float]:
    """Seconds to wait before each further try: doubling from `first` up to `cap`, each with half of it random, so that
    many who failed together don't come back together."""
    span = first
    while True:
        yield span * random.uniform(0.5, 1.0)
        span = min(cap, span * 2)


FIX = {
    EndReason.DEPLOY_FAILED: "check that the env server runs, is reachable from this machine, and can deploy",
    EndReason.CALL_TIMEOUT: "look for a hanging tool, or rewrite the rows with a longer --call-timeout",
    EndReason.ENV_LOST: "read the env server's log for why envs or connections go away",
    EndReason.MODEL_TIMEOUT: "look at the inference engines, or rewrite the rows with a longer --model-timeout",
    EndReason.MODEL_ERROR: "look at the session server and the engines behind it",
    EndReason.UNSCORED: "read the env server's log for what the verifier raised",
    EndReason.INVALID_ROW: "mend what the sentence names",
}


class FailureBrake:
    """Counts rollouts of this process that failed of one cause with no success between; see `hold`."""

    FREE = 8
    """So many failures in a row are reported at once."""
    CAP = 60.0
    """Seconds that one failing rollout is held at most."""

    def __init__(self, logger: logging.Logger) -> None:
        self._notices = Notices(logger)
        self._in_a_row: dict[EndReason, int] = {}

    def delay(self, result: RolloutResult) -> float:
        """Count one result; the seconds to hold it for. A scored one clears every count."""
        if result.status is Status.SCORED:
            self._in_a_row.clear()
            return 0.0
        if result.end_reason is EndReason.ABORTED:
            return 0.0
        count = self._in_a_row[result.end_reason] = self._in_a_row.get(result.end_reason, 0) + 1
        level = logging.ERROR if count > self.FREE else logging.WARNING
        head = f"{count} rollouts in a row failed" if count > 1 else "a rollout failed"
        fix = FIX.get(result.end_reason, "see the error")
        self._notices.say((result.end_reason, level), level, f"{head}: {result.end_reason}: {result.error}; fix: {fix}")
        if count <= self.FREE:
            return 0.0
        return float(min(self.CAP, 0.25 * 2 ** min((count - self.FREE) / 8, 16)))

    async def hold(self, result: RolloutResult) -> None:
        """Keep a failing rollout back while failures of its cause come in a row. Cancellable."""
        if seconds := self.delay(result):
            await asyncio.sleep(seconds * random.uniform(0.75, 1.0))
