"""What is wrong with a bundle, told from how policies did on it. Pure: plays in, findings out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from agent_env.authoring.oracle import Oracle
from agent_env.authoring.plays import NO_OP, UNTRAINED, Play

__all__ = ["Finding", "PolicySummary", "find", "summarize"]

NAMED = 5
"""Tasks that one finding names."""
CLOSE = 0.0005
"""How far a mean may be from the documented one, which is written with three digits."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    """`unscored`, `constant`, `hack`, `nondeterministic`, `score`, `oracle`."""
    what: str
    fix: str
    tasks: tuple[str, ...] = ()
    """Every task that it is about."""

    def __str__(self) -> str:
        named = ", ".join(task.rpartition("/")[2] for task in self.tasks[:NAMED])
        more = f" and {len(self.tasks) - NAMED} more" if len(self.tasks) > NAMED else ""
        return f"{self.kind}: {self.what}{f' ({named}{more})' if named else ''}: {self.fix}"


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """One policy over all its plays."""

    policy: str
    plays: int
    unscored: int
    rewards: tuple[float, ...]
    """Of scored plays, sorted."""
    seconds: float
    """Median of a play."""
    tool_errors: int

    @property
    def mean(self) -> float | None:
        """None without a scored play."""
        return fmean(self.rewards) if self.rewards else None


def summarize(plays: Iterable[Play]) -> list[PolicySummary]:
    """A summary for each policy, in the order in which they first played."""
    return [
        PolicySummary(
            policy=policy,
            plays=len(theirs),
            unscored=sum(play.reward is None for play in theirs),
            rewards=tuple(sorted(play.reward for play in theirs if play.reward is not None)),
            seconds=median(play.seconds for play in theirs),
            tool_errors=sum(play.tool_errors for play in theirs),
        )
        for policy, theirs in _by_policy(plays).items()
    ]


def find(plays: Sequence[Play], oracle: Oracle, *, whole: bool, replayable: Mapping[int, bool]) -> list[Finding]:
    """All that is wrong. whole: every task was played, so means can be held against the documented ones.
    replayable: by index; a task that says it isn't needn't play alike twice."""
    return [
        *_unscored(plays),
        *_constant(plays),
        *_hacks(plays, oracle),
        *_nondeterministic([play for play in plays if replayable.get(play.index, True)]),
        *(_scores(plays, oracle) if whole else ()),
        *_oracle_errors(plays, oracle),
    ]


def _unscored(plays: Iterable[Play]) -> Iterable[Finding]:
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for play in plays:
        if play.reward is None:
            reasons[play.policy, f"{play.end_reason}: {play.error}"].append(play.task)
    # One line for each end reason and policy: a message often names its task, so that each would be a finding.
    merged: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for (policy, reason), tasks in reasons.items():
        merged.setdefault((policy, reason.partition(":")[0]), (reason, []))[1].extend(tasks)
    for (policy, _), (reason, tasks) in merged.items():
        fix = "a verifier must score whatever a policy does, and an env must come up and stay"
        yield Finding("unscored", f"{len(tasks)} plays of {policy} had no score, as {reason}", fix, _once(tasks))


def _constant(plays: Sequence[Play]) -> Iterable[Finding]:
    rewards = {play.reward for play in plays if play.reward is not None}
    if len(rewards) == 1 and len(plays) > 1:
        fix = "nothing can be learnt from one reward: see that the verifier reads what the policy does"
        yield Finding("constant", f"every policy gets {rewards.pop():g} on every task", fix)


def _hacks(plays: Sequence[Play], oracle: Oracle) -> Iterable[Finding]:
    best = oracle.best
    if best is None:
        return
    by_policy = _by_policy(plays)
    ceiling = _by_task(by_policy.get(best, []))
    for policy in UNTRAINED:
        theirs = _by_task(by_policy.get(policy, []))
        tasks = [task for task, reward in theirs.items() if task in ceiling and reward >= ceiling[task]]
        if tasks:
            fix = "the reward must need what the task asks for" if policy == NO_OP else "chance must not solve a task"
            yield Finding("hack", f"{policy} scores as high as {best} on {len(tasks)} tasks", fix, tuple(tasks))


def _nondeterministic(plays: Sequence[Play]) -> Iterable[Finding]:
    for policy, theirs in _by_policy(plays).items():
        again: dict[str, Play] = {}
        differing: dict[str, str] = {}
        for play in theirs:
            first = again.setdefault(play.task, play)
            if (how := _difference(first, play)) is not None:
                differing.setdefault(play.task, how)
        if differing:
            example = next(iter(differing.values()))
            what = f"{policy} played {len(differing)} tasks twice alike and saw different things, as {example}"
            fix = "draw chance from the task's own seed; sort what has no order; use no clock"
            yield Finding("nondeterministic", what, fix, tuple(differing))


def _difference(first: Play, second: Play) -> str | None:
    if first.reward is None or second.reward is None:
        return None  # reported as unscored
    for place, (one, other) in enumerate(zip(first.seen, second.seen, strict=False)):
        if one != other:
            return f"result {place + 1} was {one[:60]!r}, then {other[:60]!r}"
    if len(first.seen) != len(second.seen):
        return f"{len(first.seen)} results, then {len(second.seen)}"
    if first.scores != second.scores or first.reward != second.reward:
        return f"scores {dict(first.scores)}, then {dict(second.scores)}"
    return None


def _scores(plays: Iterable[Play], oracle: Oracle) -> Iterable[Finding]:
    means = {summary.policy: summary.mean for summary in summarize(plays)}
    for policy, documented in oracle.scores.items():
        found = means.get(policy)
        if policy not in means:
            yield Finding("score", f"SCORES names {policy!r}, which did not play", f"it may name {', '.join(means)}")
        elif found is None or abs(found - documented) > CLOSE:
            shown = "none" if found is None else f"{found:.4f}"
            yield Finding("score", f"{policy} has a mean reward of {shown}", f"SCORES documents {documented:g}")


def _oracle_errors(plays: Iterable[Play], oracle: Oracle) -> Iterable[Finding]:
    erring = [play for play in plays if play.policy == oracle.best and play.tool_errors]
    if erring:
        result = next((text for text in erring[0].seen if text), "")
        what = (
            f"{oracle.best} made {sum(play.tool_errors for play in erring)} calls that failed (one saw {result[:80]!r})"
        )
        yield Finding("oracle", what, "see that its calls fit the tools", _once(play.task for play in erring))


def _by_policy(plays: Iterable[Play]) -> dict[str, list[Play]]:
    found: dict[str, list[Play]] = defaultdict(list)
    for play in plays:
        found[play.policy].append(play)
    return found


def _by_task(plays: Iterable[Play]) -> dict[str, float]:
    """The mean reward of each task that was scored."""
    found: dict[str, list[float]] = defaultdict(list)
    for play in plays:
        if play.reward is not None:
            found[play.task].append(play.reward)
    return {task: fmean(rewards) for task, rewards in found.items()}


def _once(tasks: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tasks))
