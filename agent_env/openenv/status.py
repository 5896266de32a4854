"""What `GET /status` says: how full the server is, and what every episode is doing."""

from __future__ import annotations

import time
from typing import Any

from agent_env.openenv.session import Session
from agent_env.openenv.sessions import Sessions
from agent_env.sandbox.interface import Sandbox

__all__ = ["status"]


def status(sessions: Sessions, sandbox: Sandbox, *, episodes: bool = True) -> dict[str, Any]:
    """JSON. Ages in seconds; `problem` is what keeps envs from being deployed at the moment (null: nothing known);
    `episodes` holds every session that has one, or waits for one (null: not asked for)."""
    admission, catalog = sessions.admission, sessions.catalog
    now = time.monotonic()
    tier = sandbox.tier
    return {
        "env": catalog.name,
        "bundle": catalog.fingerprint,
        "splits": {name: len(tasks) for name, tasks in catalog.splits.items()},
        "capacity": admission.limit,
        "live": admission.live,
        "waiting": admission.waiting,
        "sessions": len(sessions.live),
        "tier": {"name": tier.name, "gives": list(tier.gives), "lacks": list(tier.lacks)},
        "problem": sandbox.problem,
        "totals": dict(sessions.tally.ended),
        "episodes": [_episode(session, now) for session in sessions.live.values() if session.playing]
        if episodes
        else None,
    }


def _episode(session: Session, now: float) -> dict[str, Any]:
    progress, activity = session.progress, session.activity
    return {
        "session_id": session.id,
        "episode_id": progress.episode_id,
        "task": progress.place.summary() if progress.place else None,
        "turn": progress.turn,
        "steps": progress.steps,
        "age": round(now - progress.began, 3),
        "phase": activity.phase.value,
        "tool": activity.tool,
        "phase_age": round(now - activity.since, 3),
    }
