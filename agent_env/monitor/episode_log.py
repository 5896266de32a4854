"""One log line an episode, when it is over."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from agent_env.episode.types import Event

__all__ = ["EpisodeLog", "JsonLines"]

_log = logging.getLogger("agent_env.episodes")


@dataclass(slots=True)
class _Seen:
    deploy: float = 0.0
    tool: float = 0.0
    score: float = 0.0
    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    end: str = "abandoned"
    reward: float | None = None
    message: str | None = None


class EpisodeLog:
    """A listener that logs each episode once, at INFO; one that the infrastructure failed, at WARNING with the reason.

    The record's `episode` attribute holds the same as a dict, for handlers that write JSON (`JsonLines`).
    """

    def __init__(self) -> None:
        self._live: dict[str, _Seen] = {}

    def __call__(self, event: Event) -> None:
        seen, data = self._live.setdefault(event.episode_id, _Seen()), event.data
        if event.kind == "deployed":
            seen.deploy = data["seconds"]
        elif event.kind == "call":
            seen.calls += 1
            seen.tool += data["seconds"]
            if data.get("error"):
                seen.errors[str(data["error"])] += 1
        elif event.kind == "scored":
            seen.end, seen.reward, seen.score = "scored", data["reward"], data["seconds"]
        elif event.kind == "failed":
            seen.end, seen.message = str(data["reason"]), str(data["message"])
        elif event.kind == "closed":
            del self._live[event.episode_id]
            self._say(event, seen)

    def _say(self, event: Event, seen: _Seen) -> None:
        failed = seen.message is not None
        level = logging.WARNING if failed else logging.INFO
        if not _log.isEnabledFor(level):
            return
        seconds = {"deploy": seen.deploy, "tool": seen.tool, "score": seen.score, "teardown": event.data["seconds"]}
        told: dict[str, Any] = {
            "episode_id": event.episode_id,
            "task_id": event.task_id,
            "end": seen.end,
            "reward": seen.reward,
            "calls": seen.calls,
            "tool_errors": dict(seen.errors),
            "seconds": {phase: round(value, 4) for phase, value in seconds.items()},
            "message": seen.message,
        }
        text = f"{event.task_id} {event.episode_id} {seen.end}"
        if seen.reward is not None:
            text += f" reward={seen.reward:.6g}"
        text += f" calls={seen.calls} " + " ".join(f"{phase}={value:.3f}s" for phase, value in seconds.items())
        if seen.errors:
            text += " errors=" + ",".join(f"{kind}:{count}" for kind, count in seen.errors.items())
        if failed:
            text += f": {seen.message}"
        _log.log(level, "%s", text, extra={"episode": told})


class JsonLines(logging.Formatter):
    """Every record as a line of JSON: time, level, logger, message, and an episode's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": round(record.created, 6),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if isinstance(episode := getattr(record, "episode", None), dict):
            line["episode"] = episode
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
