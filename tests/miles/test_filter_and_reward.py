"""The filter and the reward hook: what is trained on, and what it is worth."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction
from typing import Any

import pytest

from agent_env.training.miles import agent
from tests.miles.samples import Args, Sample, Status, flagged, scored
from tests.training.chat_server import END, ChatServer
from tests.training.env_server import EnvServer, EnvSession
from tests.training.row import PROMPT, metadata

# -- the filter ------------------------------------------------------------------------------------------------------


def keep(samples: Any, **args: Any) -> bool:
    kept = agent.keep_scored_groups(Args(**args), samples)
    assert type(kept) is bool
    return kept


def test_a_scored_group_is_kept() -> None:
    assert keep([Sample(), Sample(reward=0.0), Sample(reward=-1, status=Status.TRUNCATED), Sample(reward=True)])


@pytest.mark.parametrize(
    "sample",
    [
        Sample(metadata=flagged()),  # case 85
        Sample(reward=None, metadata={}, status=Status.ABORTED),  # case 79
        Sample(reward=None),
        Sample(reward=math.nan),  # case 82, as are the next
        Sample(reward=math.inf),
        Sample(reward="1.0"),
        Sample(reward=10**400),
        Sample(metadata={}),
        Sample(metadata=None),
        Sample(metadata={"agentenv": None}),
        Sample(metadata={"agentenv": {}}),
        Sample(status=Status.ABORTED),
        Sample(status="aborted"),
        Sample(status="ABORTED"),
        None,
        7,
        "text",
        object(),
    ],
)
def test_one_sample_that_wasnt_scored_leaves_its_group_out(sample: Any) -> None:
    """Cases 79, 82, 85, 87: all or nothing."""
    assert keep([*[Sample()] * 7, sample]) is False
    assert keep([[Sample()], [Sample(), sample]]) is False


def test_groups_of_lists_are_looked_into() -> None:
    """Case 80."""
    assert keep([[Sample(), Sample()], [Sample()]])
    assert keep([[Sample(), Sample(metadata=flagged())], [Sample()]]) is False
    assert keep([[Sample()], []]) is False
    assert keep(([Sample()], (Sample(),)))


@pytest.mark.parametrize("samples", [[], None, 7, "group", [[]], {}])
def test_what_is_no_group_is_left_out(samples: Any) -> None:
    """Case 87: and nothing is raised."""
    assert keep(samples) is False


def test_a_dict_reward_is_read_by_its_key() -> None:
    group = [Sample(reward={"score": 1.0, "other": math.nan})]
    assert keep(group, reward_key="score")
    assert keep(group, reward_key="other") is False
    assert keep(group, reward_key="absent") is False
    assert keep(group) is False


def test_any_real_number_is_a_reward() -> None:
    """As numpy's scalars are, which register as numbers.Real."""
    assert keep([Sample(reward=Fraction(1, 2))])


def test_a_sample_that_breaks_when_looked_at_is_left_out() -> None:
    class Broken:
        @property
        def status(self) -> Any:
            raise RuntimeError("broken")

    assert keep([Sample(), Broken()]) is False


def test_the_mean_over_kept_groups_leaves_flagged_zeros_out() -> None:
    """Case 92: a flaky host doesn't look like a worse policy."""
    groups = [[Sample(reward=0.8), Sample(reward=0.6)], [Sample(reward=0.9), Sample(reward=0.0, metadata=flagged())]]
    rewards = [sample.reward for group in groups if keep(group) for sample in group]
    assert sum(rewards) / len(rewards) == pytest.approx(0.7)


# -- the reward hook -------------------------------------------------------------------------------------------------


async def test_the_reward_hook_takes_one_sample_or_a_list() -> None:
    """Case 89."""
    assert inspect.iscoroutinefunction(agent.reward)
    assert await agent.reward(Args(), Sample(reward=None, metadata=scored(0.5))) == 0.5
    group = [Sample(metadata=scored(0.5)), Sample(metadata=flagged()), Sample(metadata=None), Sample(metadata={})]
    assert await agent.reward(Args(), group) == [0.5, 0.0, 0.0, 0.0]
    assert await agent.reward(Args(), []) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "1", [1.0], 10**400])
async def test_every_reward_is_a_finite_float(value: Any) -> None:
    """Case 82."""
    given = await agent.reward(Args(), Sample(metadata=scored(value)))
    assert (given, type(given)) == (0.0, float)


async def test_a_flagged_rollout_is_worth_nothing_in_an_eval() -> None:
    """Case 89: whatever reward stands beside the flag."""
    assert await agent.reward(Args(), Sample(metadata={**flagged(), "reward": 0.9})) == 0.0


async def test_run_reward_and_filter_agree() -> None:
    def reward(session: EnvSession) -> Any:
        return 0.5

    env, chat = EnvServer(reward=reward), ChatServer(END)
    async with env.serve(), chat.serve():
        row = {"base_url": chat.base_url, "prompt": list(PROMPT), "request_kwargs": {}, "metadata": metadata(env.url)}
        sample = Sample(reward=None, metadata=await agent.run(**row))
    sample.reward = await agent.reward(Args(), sample)
    assert sample.reward == 0.5
    assert keep([sample])
