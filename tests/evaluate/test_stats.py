"""Means and intervals: by task, seeded, and right where the answer is known."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.evaluate.stats import estimate, paired_difference, pass_at_k

REWARDS = st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=8)


@given(REWARDS)
def test_the_interval_holds_the_mean_and_lies_within_the_rewards(rewards: list[list[float]]) -> None:
    found = estimate(rewards)
    flat = [reward for task in rewards for reward in task]
    assert found.mean == math.fsum(flat) / len(flat)
    assert min(flat) - 1e-9 <= found.low <= found.high <= max(flat) + 1e-9


def test_equal_rewards_have_exactly_that_mean() -> None:
    assert estimate([[0.2] * 8] * 200).mean == pytest.approx(0.2, abs=0)


def test_plays_of_one_task_do_not_narrow_the_interval() -> None:
    draw = random.Random(1)
    tasks = [draw.random() for _ in range(40)]
    once, often = estimate([[reward] for reward in tasks]), estimate([[reward] * 50 for reward in tasks])
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_the_interval_of_a_fair_coin_covers_about_its_standard_errors() -> None:
    found = estimate([[float(number % 2)] for number in range(400)])
    assert found.low == pytest.approx(0.5 - 1.96 * 0.025, abs=0.006)
    assert found.high == pytest.approx(0.5 + 1.96 * 0.025, abs=0.006)


def test_no_episode_is_no_number() -> None:
    assert math.isnan(estimate([]).mean)


def test_a_difference_is_taken_task_by_task() -> None:
    found = paired_difference({1: [0.0, 1.0], 2: [0.2], 3: [0.9]}, {1: [1.0], 2: [0.3], 4: [0.0]})
    assert found.mean == pytest.approx((0.5 + 0.1) / 2)
    assert found.tasks == 2


def test_pass_at_k_counts_without_bias() -> None:
    assert pass_at_k([[1.0, 0.0, 0.0, 0.0]], 1) == pytest.approx(0.25)
    assert pass_at_k([[1.0, 0.0, 0.0, 0.0]], 2) == pytest.approx(0.5)
    assert pass_at_k([[1.0, 0.0], [0.0, 0.0]], 2) == pytest.approx(0.5)


def test_pass_at_k_is_only_for_binary_rewards_and_enough_episodes() -> None:
    assert pass_at_k([[0.5, 1.0]], 1) is None
    assert pass_at_k([[1.0]], 2) is None
    assert pass_at_k([], 1) is None
