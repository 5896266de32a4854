from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bundles.gridsim import VERIFY, baselines, rules

HOURS = 24
PRICES = [2000] * HOURS
DAY = {"power": 10, "duration": 2, "efficiency": 90, "wear": 500, "prices": PRICES}

days = st.fixed_dictionaries(
    {
        "power": st.integers(1, 4),
        "duration": st.integers(1, 4),
        "efficiency": st.integers(1, 100),
        "wear": st.integers(0, 2000),
        "prices": st.lists(st.integers(-25_000, 500_000), min_size=HOURS, max_size=HOURS),
    }
)


def brute_force(day: dict[str, Any]) -> int:
    """The best profit over every schedule of integers, with the rules written down a second time."""
    power, capacity = day["power"], day["power"] * day["duration"]

    @functools.cache
    def best(hour: int, stored: int) -> int:
        if hour == HOURS:
            return 0
        price = day["prices"][hour]
        made = []
        for move in range(-min(power, stored), min(power, capacity - stored) + 1):
            bought, taken_out = max(move, 0), max(-move, 0)
            money = taken_out * (price * day["efficiency"] - day["wear"] * 100) - bought * price * 100
            made.append(money + best(hour + 1, stored + move))
        return max(made)

    return best(0, 0)


def plan(**moves: int) -> list[int]:
    """A schedule that idles but in the hours named, as `h3=10`."""
    schedule = [0] * HOURS
    for hour, move in moves.items():
        schedule[int(hour[1:])] = move
    return schedule


@given(day=days)
def test_the_optimum_is_the_best_of_all_schedules(day: dict[str, Any]) -> None:
    best, schedule = rules.optimum(day)
    assert best == brute_force(day)
    assert rules.profit(day, schedule) == best


@given(day=days, schedule=st.lists(st.integers(-5, 5), min_size=HOURS, max_size=HOURS))
def test_a_schedule_breaks_a_rule_or_makes_no_more_than_the_optimum(day: dict[str, Any], schedule: list[int]) -> None:
    stored = [sum(schedule[: hour + 1]) for hour in range(HOURS)]
    keeps = all(abs(move) <= day["power"] for move in schedule)
    keeps = keeps and min(stored) >= 0 and max(stored) <= day["power"] * day["duration"]
    try:
        made = rules.profit(day, schedule)
    except rules.RuleBroken:
        assert not keeps
    else:
        assert keeps
        assert made <= rules.optimum(day)[0]


def test_profit_counts_every_hundredth_of_a_cent() -> None:
    prices = list(PRICES)
    prices[3], prices[20] = 1999, 10_001
    day = {**DAY, "efficiency": 85, "prices": prices}
    assert rules.profit(day, plan(h3=10, h20=-7)) == -10 * 1999 * 100 + 7 * (10_001 * 85 - 500 * 100)


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (plan(h0=11), "hour 0 moves more than 10 MWh"),
        (plan(h0=10, h1=10, h2=-11), "hour 2 moves more than 10 MWh"),
        (plan(h5=-1), "hour 5 takes out 1 MWh, but only 0 MWh are stored"),
        (plan(h0=4, h5=-5), "hour 5 takes out 5 MWh, but only 4 MWh are stored"),
        (plan(h0=10, h1=10, h2=1), "hour 2 stores 21 MWh, but only 20 MWh fit"),
        (plan(h0=10**4000), "hour 0 moves more than 10 MWh"),
    ],
)
def test_a_broken_rule_is_named_with_its_hour(schedule: list[int], why: str) -> None:
    with pytest.raises(rules.RuleBroken) as broken:
        rules.profit(DAY, schedule)
    assert str(broken.value) == why


def test_what_is_left_at_the_end_is_worth_nothing() -> None:
    assert rules.profit(DAY, plan(h23=10)) == -10 * 2000 * 100


def test_negative_prices_pay_for_buying_and_cost_selling() -> None:
    day = {**DAY, "prices": [-1000] * HOURS}
    assert rules.profit(day, plan(h0=10)) == 10 * 1000 * 100
    assert rules.profit(day, plan(h0=10, h1=-10)) == 10 * 1000 * 100 - 10 * (1000 * 90 + 500 * 100)


@given(optimum=st.integers(1, 10**12))
def test_the_score_is_exact_where_it_matters(optimum: int) -> None:
    score = VERIFY["score"]
    assert score(optimum, optimum) == 1.0
    assert score(0, optimum) == 0.2
    assert score(-1, optimum) == 0.0
    assert score(None, optimum) == 0.0


@given(optimum=st.integers(1, 10**12), data=st.data())
def test_more_profit_never_scores_less(optimum: int, data: st.DataObject) -> None:
    less = data.draw(st.integers(-optimum, optimum))
    more = data.draw(st.integers(less, optimum))
    assert 0.0 <= VERIFY["score"](less, optimum) <= VERIFY["score"](more, optimum) <= 1.0


@given(day=days)
def test_every_rule_but_careless_keeps_the_rules(day: dict[str, Any]) -> None:
    for name in set(baselines.BASELINES) - {"careless"}:
        made = rules.profit(day, baselines.BASELINES[name](day))
        assert made <= rules.optimum(day)[0]
        assert made >= 0 or name in ("threshold", "clock")
