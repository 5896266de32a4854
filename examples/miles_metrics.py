"""What the envs did, in Miles' own log: turns, tool errors, end reasons and time by phase, of train and eval.

    --custom-rollout-log-function-path miles_metrics.log_rollout            # this folder on PYTHONPATH
    --custom-eval-rollout-log-function-path miles_metrics.log_eval_rollout
    --dynamic-sampling-filter-path filters.keep_and_count                   # the drops by cause

Each returns False, so Miles logs its own metrics as well, and ours go to the same trackers at the same step:

    rollout/agentenv/turns/mean, .../max          also tool_calls, tool_errors, invalid_arguments, recoveries, ...
    rollout/agentenv/seconds_deploy/mean, .../max also wait, model, tool, score, total
    rollout/agentenv/end_replied                  the share of rollouts that ended so; one for each end reason seen
    rollout/agentenv/scored                       the share of rollouts that were scored
    rollout/agentenv/reward_scored                their mean reward, without the zeros of the failed ones
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import mean
from typing import Any

from filters import flat

logger = logging.getLogger(__name__)


def log_rollout(
    rollout_id: int, args: Any, samples: list[Any], rollout_extra_metrics: dict[str, Any] | None, rollout_time: float
) -> bool:
    """Miles' custom rollout log function. `samples` are those it trains on, so all of them were scored."""
    metrics = {f"rollout/agentenv/{name}": value for name, value in summary(samples).items()}
    if rollout_extra_metrics is not None:
        rollout_extra_metrics.update(metrics)  # Miles logs what this dict holds together with its own
    else:
        _log(rollout_id, args, metrics, "rollout/step")
    return False


def log_eval_rollout(
    rollout_id: int, args: Any, data: dict[str, Any], extra_metrics: dict[str, Any] | None = None
) -> bool:
    """Miles' custom eval log function. Nothing is filtered in an eval: failed rollouts count as 0 in Miles' mean."""
    metrics = {
        f"eval/{dataset}/agentenv/{name}": value
        for dataset, result in data.items()
        for name, value in summary(result.get("samples") or ()).items()
    }
    if extra_metrics is not None:
        extra_metrics.update(metrics)
    else:
        _log(rollout_id, args, metrics, "eval/step")
    return False


def summary(samples: Iterable[Any]) -> dict[str, float]:
    """The numbers, by name. Samples without our metadata count as rollouts that were not scored."""
    rollouts = [(sample, (sample.metadata or {}).get("agentenv") or {}) for sample in flat(samples)]
    if not rollouts:
        return {}
    values: dict[str, list[float]] = defaultdict(list)
    for sample, told in rollouts:
        for name, count in (sample.metadata or {}).get("agent_metrics", {}).items():
            values[name].append(count)
        for phase, seconds in told.get("seconds", {}).items():
            values[f"seconds_{phase}"].append(seconds)
    found: dict[str, float] = {}
    for name, numbers in values.items():
        found[f"{name}/mean"] = mean(numbers)
        found[f"{name}/max"] = max(numbers)
    ends = Counter(told.get("end_reason", "no_metadata") for _, told in rollouts)
    found |= {f"end_{reason}": count / len(rollouts) for reason, count in ends.items()}
    rewards = [sample.metadata["reward"] for sample, told in rollouts if told.get("status") == "scored"]
    found["scored"] = len(rewards) / len(rollouts)
    if rewards:
        found["reward_scored"] = mean(rewards)
    return found


def _log(rollout_id: int, args: Any, metrics: dict[str, Any], step_key: str) -> None:
    """Send the metrics to Miles' trackers, where Miles gave no dict to add them to."""
    from miles.utils.metric_utils import compute_rollout_step
    from miles.utils.tracking_utils import tracking

    logger.info("agentenv %s: %s", rollout_id, metrics)
    tracking.log(args, {**metrics, step_key: compute_rollout_step(args, rollout_id)}, step_key=step_key)
