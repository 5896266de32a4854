"""Rollouts as Miles makes them, without Miles: what goes on around an agent function.

For each sample a session is opened, the agent function is called with its URL and the row, what it returns is merged
into the sample's metadata, the reward hook is called, and the filter judges each finished group. The quickstart, the
evaluation command and the tests play rows through this, against the session server's stand-in.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Self

import httpx

__all__ = ["DEFAULT_SAMPLING", "Group", "Hooks", "Rehearsal", "Sample", "read_rows"]

logger = logging.getLogger(__name__)

DEFAULT_SAMPLING: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "max_tokens": 1024,
    "skip_special_tokens": False,
    "no_stop_trim": True,
}
"""The `request_kwargs` that Miles makes of its defaults and `--rollout-max-response-len 1024`."""


@dataclass(slots=True)
class Sample:
    """One rollout's sample, with the names of Miles' own that hooks read."""

    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"

    prompt: list[dict[str, Any]]
    metadata: dict[str, Any]
    group_index: int = 0
    index: int = 0
    status: Status = Status.PENDING
    reward: Any = None
    """What the reward hook returned; None: it wasn't called."""
    non_generation_time: float = 0.0
    """Seconds, from the agent function's `agent_metrics.total_tool_time`."""
    records: list[dict[str, Any]] = field(default_factory=list)
    """The turns that the session recorded: {"request", "response", ...} each. (Miles holds their tokens here.)"""
    warnings: list[str] = field(default_factory=list)
    """What the session server found amiss in the requests; [] of a sound agent function."""

    def get_reward_value(self, args: Any) -> Any:
        return self.reward[args.reward_key] if getattr(args, "reward_key", None) else self.reward


@dataclass(frozen=True, slots=True)
class Hooks:
    """The callables that Miles' flags name."""

    run: Callable[..., Awaitable[dict[str, Any] | None]]
    """--custom-agent-function-path"""
    reward: Callable[..., Awaitable[Any]]
    """--custom-rm-path"""
    keep: Callable[..., Any]
    """--dynamic-sampling-filter-path: truthy, or an object with `keep`"""


@dataclass(frozen=True, slots=True)
class Group:
    """The rollouts of one row, and the filter's verdict."""

    samples: tuple[Sample, ...]
    kept: bool


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file, in order."""
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").split("\n") if line]


class Rehearsal:
    """Plays rows through the hooks, a session each. Use as an async context manager."""

    def __init__(
        self,
        hooks: Hooks,
        session_url: str,
        *,
        policy: str | None = None,
        group_size: int = 8,
        concurrency: int = 32,
        sampling: Mapping[str, Any] = DEFAULT_SAMPLING,
        max_seq_len: int | None = None,
    ) -> None:
        """`session_url`: the session server's, as http://127.0.0.1:8300. `policy`: which of its policies plays; None:
        its first. `concurrency`: rollouts at once. `sampling`: the `request_kwargs`. `max_seq_len`: Miles' flag.
        """
        self.hooks = hooks
        self.policy = policy
        self.group_size = group_size
        self.sampling = sampling
        self.max_seq_len = max_seq_len
        self.args = Namespace(n_samples_per_prompt=group_size, reward_key=None, group_rm=False)
        self._url = session_url.rstrip("/")
        self._room = asyncio.Semaphore(concurrency)
        # Few connections: the calls are short, and the pool's own cost grows with the square. Each is given up before
        # the server may do so (uvicorn: after 5 s idle), which would lose the request that is just being sent.
        limits = httpx.Limits(max_connections=8, keepalive_expiry=2.0)
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, limits=limits)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    async def play(
        self, rows: Sequence[Mapping[str, Any]], on_group: Callable[[Group], None] = lambda group: None
    ) -> list[Group]:
        """Play every row `group_size` times; the groups in the rows' order. `on_group` hears each as it finishes.

        Raises what the session server's unreachability or a hook raises, as an ExceptionGroup.
        """

        async def one(index: int, row: Mapping[str, Any]) -> Group:
            group = await self.play_group(row, index)
            on_group(group)
            return group

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(index, row)) for index, row in enumerate(rows)]
        return [task.result() for task in running]

    async def play_group(self, row: Mapping[str, Any], group_index: int = 0) -> Group:
        """Play one row `group_size` times at once, and let the filter judge."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._generate_and_reward(self._sample(row, group_index, number)))
                for number in range(self.group_size)
            ]
        samples = tuple(task.result() for task in running)
        verdict = self.hooks.keep(self.args, list(samples))
        return Group(samples, bool(getattr(verdict, "keep", verdict)))

    async def generate(self, sample: Sample) -> Sample:
        """Call the agent function once and merge what it returns, as Miles' `agentic_tool_call.generate` does.

        A session that recorded no chat turn makes the sample ABORTED, without the agent's metadata.
        """
        body = {"policy": self.policy} if self.policy else {}
        opened = await self._client.post(f"{self._url}/sessions", json=body)
        session = f"{self._url}/sessions/{opened.raise_for_status().json()['session_id']}"
        metadata = {**sample.metadata, "session_server_id": self._url.partition("://")[2]}
        if self.max_seq_len is not None:
            metadata["max_seq_len"] = self.max_seq_len
        returned: dict[str, Any] | None = None
        try:
            returned = await self.hooks.run(
                base_url=session, prompt=sample.prompt, request_kwargs=dict(self.sampling), metadata=metadata
            )
        except Exception:
            logger.warning("the agent function raised", exc_info=True)
        finally:
            recorded = (await self._client.get(session)).raise_for_status().json()
            await self._client.delete(session)
        sample.records = recorded["records"]
        sample.warnings = recorded["metadata"].get("warnings", [])
        if not sample.records:
            sample.status = Sample.Status.ABORTED
            return sample
        sample.status = _status(sample.records[-1]["response"]["choices"][0]["finish_reason"])
        sample.metadata.update(returned or {})
        tool_time = ((returned or {}).get("agent_metrics") or {}).get("total_tool_time")
        sample.non_generation_time = tool_time or 0.0
        return sample

    async def _generate_and_reward(self, sample: Sample) -> Sample:
        async with self._room:
            sample = await self.generate(sample)
        if sample.status is not Sample.Status.ABORTED and sample.reward is None:
            sample.reward = await self.hooks.reward(self.args, sample)
        return sample

    def _sample(self, row: Mapping[str, Any], group_index: int, number: int) -> Sample:
        return Sample(
            prompt=copy.deepcopy(row["messages"]),
            metadata=copy.deepcopy(row["metadata"]),
            group_index=group_index,
            index=group_index * self.group_size + number,
        )


def _status(finish_reason: str) -> Sample.Status:
    special = {"length": Sample.Status.TRUNCATED, "abort": Sample.Status.ABORTED}
    return special.get(finish_reason, Sample.Status.COMPLETED)
