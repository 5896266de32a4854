"""What a run of Miles calls beside the agent function: a record of every rollout, and the control's shuffled rewards.

--custom-rollout-log-function-path hooks.log_rollout
--custom-eval-rollout-log-function-path hooks.log_eval_rollout
--custom-reward-post-process-path hooks.shuffled_rewards        # the control only
"""

import json
import os
import random
import time
from collections import defaultdict
from statistics import fmean, stdev
from typing import Any

import miles_metrics
from filters import flat

RECORD = "TINY_RECORD"
"""Names the file that the record is appended to, a line of JSON for each step and each eval."""


def log_rollout(step: int, args: Any, samples: list[Any], extra: dict[str, Any] | None, seconds: float) -> bool:
    """Miles' hook, with the samples that it trains on. The metrics go to Miles' log as in the larger examples."""
    miles_metrics.log_rollout(step, args, samples, extra, seconds)
    drops = {name: count for name, count in (extra or {}).items() if "dynamic_filter" in name}
    _record("train", step, samples, rollout_seconds=seconds, drops=drops)
    return False


def log_eval_rollout(step: int, args: Any, data: dict[str, Any], extra: dict[str, Any] | None = None) -> bool:
    """Miles' hook, with every sample of the eval."""
    miles_metrics.log_eval_rollout(step, args, data, extra)
    for result in data.values():
        _record("eval", step, result["samples"])
    return False


def shuffled_rewards(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Miles' hook: (rewards to log, advantages). Every rollout of the batch is given another's reward, and then GRPO's
    group baseline is taken as ever: the same updates, but of a reward that says nothing about the rollout."""
    true = [float(sample.reward) for sample in samples]
    given = random.Random(sum(sample.index for sample in samples)).sample(true, len(true))
    groups: dict[Any, list[float]] = defaultdict(list)
    for sample, reward in zip(samples, given, strict=True):
        groups[sample.group_index].append(reward)
    advantages = []
    for sample, reward in zip(samples, given, strict=True):
        group = groups[sample.group_index]
        advantages.append((reward - fmean(group)) / (stdev(group) + 1e-6))
    return true, advantages


def _record(kind: str, step: int, samples: list[Any], **more: Any) -> None:
    rollouts = []
    for sample in flat(samples):
        told = (sample.metadata or {}).get("agentenv") or {}
        rollouts.append(
            {
                "index": told.get("index"),
                "reward": sample.reward,
                "status": told.get("status"),
                "end": told.get("end_reason"),
                "seconds": told.get("seconds", {}),
                "tokens": sample.response_length,
                **{name: told.get(name, 0) for name in ("turns", "tool_calls", "tool_errors", "invalid_arguments")},
            }
        )
    line = {"kind": kind, "step": step, "time": time.time(), "rollouts": rollouts, **more}
    with open(os.environ[RECORD], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
