"""An evaluation in numbers: what summary.json, the terminal's table and the report show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from agent_env.evaluate.results import EpisodeResult, by_task
from agent_env.evaluate.stats import Estimate, estimate, pass_at_k

__all__ = ["PHASES", "Summary", "summarize"]

_Key = TypeVar("_Key", str, int)

PHASES = ("wait", "deploy", "model", "tool", "score")


@dataclass(frozen=True, slots=True)
class Summary:
    scored: Estimate
    """Over the scored episodes only: what the policy is worth."""
    with_failures: Estimate
    """Over all episodes, a failed one as 0: what a trainer's eval shows, which runs no filter."""
    by_tag: dict[str, dict[str, Estimate]]
    """Scored episodes by tag name and value."""
    by_turns: dict[int, Estimate]
    """Scored episodes by the number of model turns."""
    pass_at: dict[int, float]
    """By k, where rewards are 0 or 1."""
    ends: Counter[str]
    failures: Counter[str]
    """Failed episodes by end reason."""
    errors: dict[str, str]
    """One error of each failed end reason."""
    phases: dict[str, float]
    """Median seconds of an episode by phase."""
    tool_calls: int
    invalid_arguments: int
    unknown_tools: int
    recoveries: int

    def as_json(self) -> dict[str, Any]:
        """For summary.json: names say what they count."""
        return {
            "reward_scored": _json(self.scored),
            "reward_failed_as_0": _json(self.with_failures),
            "by_tag": {
                tag: {value: _json(mean) for value, mean in values.items()} for tag, values in self.by_tag.items()
            },
            "by_turns": {str(turns): _json(mean) for turns, mean in self.by_turns.items()},
            "pass_at_k": {str(k): value for k, value in self.pass_at.items()},
            "end_reasons": dict(self.ends),
            "failures": dict(self.failures),
            "errors": self.errors,
            "median_seconds": self.phases,
            "tool_calls": self.tool_calls,
            "invalid_arguments": self.invalid_arguments,
            "unknown_tools": self.unknown_tools,
            "recoveries": self.recoveries,
        }


def summarize(results: Sequence[EpisodeResult]) -> Summary:
    scored = [result for result in results if result.scored]
    failed = [result for result in results if not result.scored]
    tags = sorted({tag for result in results for tag in result.tags})
    rewards = _rewards(scored)
    most = min((len(task) for task in rewards), default=0)
    pass_at = {k: pass_at_k(rewards, k) for k in (1, 2, 4, 8, 16, 32) if k <= most}
    return Summary(
        scored=estimate(rewards),
        with_failures=estimate(_rewards(results)),
        by_tag={tag: _grouped(scored, lambda result, tag=tag: result.tags.get(tag, "")) for tag in tags},  # type: ignore[misc]
        by_turns=_grouped(scored, lambda result: result.counts.get("turns", 0)),
        pass_at={k: value for k, value in pass_at.items() if value is not None},
        ends=Counter(result.end_reason for result in results),
        failures=Counter(result.end_reason for result in failed),
        errors={result.end_reason: result.error or "" for result in reversed(failed)},
        phases={
            phase: median(result.seconds.get(phase, 0.0) for result in results) if results else 0.0
            for phase in (*PHASES, "total")
        },
        tool_calls=_count(results, "tool_calls"),
        invalid_arguments=_count(results, "invalid_arguments"),
        unknown_tools=_count(results, "unknown_tools"),
        recoveries=_count(results, "recoveries"),
    )


def _rewards(results: Sequence[EpisodeResult]) -> list[list[float]]:
    return [[result.reward for result in task] for task in by_task(results).values()]


def _grouped(results: Sequence[EpisodeResult], key: Callable[[EpisodeResult], _Key]) -> dict[_Key, Estimate]:
    groups: dict[_Key, list[EpisodeResult]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return {value: estimate(_rewards(group)) for value, group in sorted(groups.items(), key=_in_order)}


def _in_order(item: tuple[str | int, object]) -> list[tuple[int, str]]:
    """Numbers in a value by their size: 2h before 10h."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(item[0])) if part]


def _count(results: Sequence[EpisodeResult], name: str) -> int:
    return sum(result.counts.get(name, 0) for result in results)


def _json(value: Estimate) -> dict[str, float | int | None]:
    def number(x: float) -> float | None:
        return x if x == x else None  # NaN is not JSON

    return {
        "mean": number(value.mean),
        "low": number(value.low),
        "high": number(value.high),
        "tasks": value.tasks,
        "episodes": value.episodes,
    }
