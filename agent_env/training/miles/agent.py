"""What Miles calls: the agent function, and the hooks that go with it. Nothing of Miles is imported.

    --custom-agent-function-path agent_env.training.miles.agent.run
    --custom-rm-path agent_env.training.miles.agent.reward
    --dynamic-sampling-filter-path agent_env.training.miles.agent.keep_scored_groups

Miles finds `abort` beside `run` by its name. How Miles calls each of them, and what it makes of their results, was read
from radixark/miles at 31f1ca961 (2026-08-21) and seen with its session server and rollout loops running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_env.training.backoff import FailureBrake
from agent_env.training.chat import ChatSession
from agent_env.training.miles.evals import eval_splits
from agent_env.training.miles.report import report
from agent_env.training.rewards import finite
from agent_env.training.rollout import COUNTS, Rollout
from agent_env.training.row import read_row, read_token
from agent_env.training.types import EndReason, InvalidRow, RolloutResult, Status

__all__ = ["abort", "keep_scored_groups", "reward", "run"]

ABORT_WAIT = 1.8
"""Seconds that `abort` waits for the rollouts it cancelled to close their envs."""

logger = logging.getLogger("agent_env.training.miles")
_brake = FailureBrake(logger)
_running: dict[asyncio.Task[RolloutResult], str] = {}
"""The rollouts in flight in this process, with their rows' splits."""


async def run(
    base_url: str = "",
    prompt: Any = None,
    request_kwargs: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Play one sample's row as one episode, the model chatting through `base_url`; Miles' arguments, by keyword.

    Always returns a dict of plain JSON, {"reward", "agentenv", "agent_metrics"}: it never raises, but for the
    cancellation of its own task.
    """
    return report(await _play(base_url, prompt, request_kwargs, metadata), base_url)


async def reward(args: Any, sample: Any, **kwargs: Any) -> Any:
    """Miles' reward hook: a float for one sample, a list of floats for a list. Always finite: 0.0 for a sample that
    failed or that carries no result of `run`."""
    if isinstance(sample, list | tuple):
        return [_reward_of(one) for one in sample]
    return _reward_of(sample)


def keep_scored_groups(args: Any, samples: Any, **kwargs: Any) -> bool:
    """Miles' dynamic filter: True if every sample of the group (lists in it are looked into) was scored.

    A sample that was aborted, has no finite reward, or carries no result of `run` leaves its whole group out: what
    the infrastructure caused is not trained on. Never raises. The group's size is not checked: Miles does that.
    """
    try:
        group = list(_flatten(samples))
        return bool(group) and all(one is not None and _is_kept(args, one) for one in group)
    except Exception:
        logger.exception("a group couldn't be read, and is left out")
        return False


async def abort(args: Any) -> None:
    """Miles' abort hook: cancel the training rollouts in flight and close their envs, within 2 s.

    Rollouts of eval rows go on; so do those that begin later. Without the hook, Miles waits for every straggler.
    """
    spared = eval_splits(args)
    loop = asyncio.get_running_loop()
    tasks = [task for task, split in _running.items() if split not in spared and task.get_loop() is loop]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=ABORT_WAIT)
        logger.info("aborted %d rollouts; %d were still closing", len(tasks), sum(not task.done() for task in tasks))


async def _play(base_url: str, prompt: Any, request_kwargs: Any, metadata: Any) -> RolloutResult:
    """The rollout in a task of its own, which `abort` may cancel without cancelling Miles' task."""
    rollout: Rollout | None = None

    async def play() -> RolloutResult:
        nonlocal rollout
        try:
            rollout = _prepare(base_url, prompt, request_kwargs, metadata)
            result = await rollout.play()
        except InvalidRow as error:
            result = _unplayed(metadata, EndReason.INVALID_ROW, str(error))
        except Exception as error:
            logger.exception("a rollout failed by a bug of agent-env")
            reason, message = EndReason.ENV_LOST, f"unexpected {type(error).__name__}: {error}"
            result = rollout.result(reason, message) if rollout else _unplayed(metadata, reason, message)
        await _brake.hold(result)
        return result

    task = asyncio.create_task(play())
    split = metadata.get("split") if isinstance(metadata, Mapping) else None
    _running[task] = split if isinstance(split, str) else ""
    ours = asyncio.current_task()
    before = ours.cancelling() if ours else 0
    try:
        result = await task
        if ours is not None and ours.cancelling() > before:  # Miles' cancellation came as the rollout ended
            raise asyncio.CancelledError
        return result
    except asyncio.CancelledError:
        if ours is not None and ours.cancelling() > before:
            raise
        message = "the trainer aborted the rollout"
        if rollout is None:
            return _unplayed(metadata, EndReason.ABORTED, message)
        return rollout.result(EndReason.ABORTED, message)
    finally:
        task.cancel()
        del _running[task]


def _prepare(base_url: Any, prompt: Any, request_kwargs: Any, metadata: Any) -> Rollout:
    """Raises InvalidRow."""
    row = read_row(prompt, metadata)
    token = read_token(row.server)
    if not isinstance(base_url, str) or not base_url.startswith(("http://", "https://")):
        raise InvalidRow(
            f"base_url is {base_url!r:.80}: pass --use-session-server, whose sessions the model chats through"
        )
    if request_kwargs is not None and not isinstance(request_kwargs, Mapping):
        raise InvalidRow(f"request_kwargs is of type {type(request_kwargs).__name__}, not a mapping")
    try:
        chat = ChatSession(base_url, tools=row.tools, request_kwargs=request_kwargs)
    except (TypeError, ValueError) as error:
        raise InvalidRow(f"request_kwargs hold what JSON can't carry: {error}") from error
    limit = metadata.get("max_seq_len")
    limited = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
    return Rollout(row, chat, token=token, max_seq_len=limit if limited else None)


def _unplayed(metadata: Any, reason: EndReason, error: str) -> RolloutResult:
    """The result of a rollout that never began."""
    given = metadata if isinstance(metadata, Mapping) else {}
    split, index, task_id = (given.get(key) for key in ("split", "index", "task_id"))
    return RolloutResult(
        status=Status.FAILED,
        end_reason=reason,
        reward=0.0,
        error=error,
        task_id=task_id if isinstance(task_id, str) else "",
        split=split if isinstance(split, str) else "",
        index=index if isinstance(index, int) else -1,
        counts=dict.fromkeys(COUNTS, 0),
    )


def _flatten(samples: Any) -> Iterator[Any]:
    """Every sample; None for a list that holds none, since a member of the group is missing there."""
    if not isinstance(samples, Sequence) or isinstance(samples, str):
        yield samples
    elif not samples:
        yield None
    else:
        for one in samples:
            yield from _flatten(one)


def _is_kept(args: Any, sample: Any) -> bool:
    status = getattr(sample, "status", None)
    name, value = getattr(status, "name", status), getattr(status, "value", status)
    if str(name).upper() == "ABORTED" or str(value).upper() == "ABORTED":
        return False
    value = getattr(sample, "reward", None)
    if isinstance(value, Mapping):
        value = value.get(getattr(args, "reward_key", None))
    return finite(value) is not None and _result_of(sample).get("status") == Status.SCORED.value


def _reward_of(sample: Any) -> float:
    metadata = getattr(sample, "metadata", None)
    scored = _result_of(sample).get("status") == Status.SCORED.value
    value = finite(metadata.get("reward")) if scored and isinstance(metadata, Mapping) else None
    return 0.0 if value is None else value


def _result_of(sample: Any) -> Mapping[str, Any]:
    metadata = getattr(sample, "metadata", None)
    result = metadata.get("agentenv") if isinstance(metadata, Mapping) else None
    return result if isinstance(result, Mapping) else {}
