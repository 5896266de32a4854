"""Run in a container: `python3 play_inside.py BUNDLE SCHEDULE...` plays the first GridSim task of the split eval in the
process sandbox, once with each schedule (JSON), and tells a line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agent_env.bundle import Bundle, load_bundle
from agent_env.episode import Episode, Outcome
from agent_env.sandbox.process import ProcessSandbox
from agent_env.sandbox.process.tiers import probe_tier


async def main(folder: str, schedules: list[str]) -> dict[str, Any]:
    tier, refused = await probe_tier()
    bundle = load_bundle(Path(folder))
    box = ProcessSandbox()
    await box.start()
    try:
        rewards = [await play(bundle, box, json.loads(schedule)) for schedule in schedules]
    finally:
        await box.close()
    return {"tier": tier.name if tier else None, "refused": list(refused), "rewards": rewards}


async def play(bundle: Bundle, box: ProcessSandbox, schedule: list[int]) -> float | None:
    episode = Episode(bundle.splits["eval"].tasks[0], bundle, box, episode_id="inside")
    try:
        await episode.start()
        await episode.call("submit_schedule", {"schedule": schedule})
        outcome = await episode.end_turn("done")
    finally:
        await episode.close()
    assert isinstance(outcome, Outcome)
    return outcome.reward


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2:]))))
