"""A filter for Miles that leaves out what `keep_scored_groups` does, and lets Miles count it by cause.

    --dynamic-sampling-filter-path filters.keep_and_count       # this folder on PYTHONPATH

Miles logs `rollout/dynamic_filter/drop_agentenv_<cause>`: how many groups a step dropped for it. The cause is the most
frequent one of the group's failed rollouts: a failed end reason (`deploy_failed`, `env_lost`, `model_timeout`, ...),
`aborted`, `no_metadata` (the agent function never returned), `no_reward`, or `other`.
"""

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agent_env.training.miles.agent import keep_scored_groups
from agent_env.training.types import SCORED, EndReason

CAUSES = frozenset(reason.value for reason in EndReason if reason not in SCORED)


@dataclass
class StandIn:
    """What the filter returns where Miles isn't installed."""

    keep: bool
    reason: str | None = None

    def __bool__(self) -> bool:
        return self.keep


def filter_output() -> Any:
    """Miles' own class, which has had two names; only with it does Miles count the reason."""
    try:
        base_types = importlib.import_module("miles.rollout.filter_hub.base_types")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "miles":
            raise
        return StandIn
    return getattr(base_types, "FilterOutput", None) or base_types.DynamicFilterOutput


def keep_and_count(args: Any, samples: list[Any], **kwargs: Any) -> Any:
    """Keep a group only if every rollout in it was scored; else drop it, with the cause for Miles to count."""
    if keep_scored_groups(args, samples, **kwargs):
        return filter_output()(keep=True)
    return filter_output()(keep=False, reason=f"agentenv_{cause(samples)}")


def keep_varied_and_count(args: Any, samples: list[Any], **kwargs: Any) -> Any:
    """As `keep_and_count`, and drop groups of equal rewards too: GRPO learns nothing from them."""
    output = keep_and_count(args, samples, **kwargs)
    if output.keep and len({sample.get_reward_value(args) for sample in flat(samples)}) == 1:
        return filter_output()(keep=False, reason="agentenv_equal_rewards")
    return output


def cause(samples: list[Any]) -> str:
    """Why a group was dropped, as one of a dozen words."""
    found = Counter(why for sample in flat(samples) if (why := _cause_of(sample)) is not None)
    return found.most_common(1)[0][0] if found else "other"


def flat(samples: Iterable[Any]) -> Iterator[Any]:
    """The samples of a group, which may hold lists of them."""
    for sample in samples:
        if isinstance(sample, list):
            yield from flat(sample)
        else:
            yield sample


def _cause_of(sample: Any) -> str | None:
    told = (getattr(sample, "metadata", None) or {}).get("agentenv")
    if not told:  # Miles merges no metadata into a sample that it aborts
        return "aborted" if getattr(sample.status, "value", sample.status) == "aborted" else "no_metadata"
    if told.get("status") != "scored":
        return told.get("end_reason") if told.get("end_reason") in CAUSES else "other"
    return "no_reward" if sample.reward is None else None
