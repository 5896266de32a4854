"""What counts as a score, and what rows and scores come to."""

from __future__ import annotations

import decimal
import fractions
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.episode.scores import aggregate, as_score, reward_named, reward_of


class Scalar:
    """As numpy's: no container, with a float inside."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __float__(self) -> float:
        return float(self.value)


class Tensor(Scalar):
    """As torch's: len() exists and refuses a 0-d one."""

    def __len__(self) -> int:
        raise TypeError("len() of a 0-d tensor")


class Array(Scalar):
    """An array of one number has a float inside, too."""

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (False, 0.0),
        (-3, -3.0),
        (Scalar(0.5), 0.5),
        (Tensor(0.5), 0.5),
        (decimal.Decimal("0.5"), 0.5),
        (fractions.Fraction(1, 2), 0.5),
    ],
)
def test_numbers_and_scalars_are_scores(value: Any, score: float) -> None:
    assert as_score(value) == score
    assert type(as_score(value)) is float


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        10**400,
        Scalar(math.nan),
        Scalar("x"),
        None,
        "1",
        b"1",
        [1.0],
        (1.0,),
        {"score": 1.0},
        {1.0},
        Array(1.0),
        1 + 0j,
        object(),
        lambda: 1.0,
    ],
)
def test_nothing_else_is(value: Any) -> None:
    with pytest.raises(ValueError, match="no score"):
        as_score(value)


def row(score: Any = None, weight: float | None = None, **more: Any) -> dict[str, Any]:
    given = {"score": score, "weight": weight}
    return {**{key: value for key, value in given.items() if value is not None}, **more}


@pytest.mark.parametrize(
    ("aggregator", "rows", "score"),
    [
        ("all_pass", [], 0.0),
        ("any_pass", [], 0.0),
        ("weighted_average", [], 0.0),
        ("all_pass", [{"result": True}, {"result": True}], 1.0),
        ("all_pass", [{"result": True}, {"result": False}], 0.0),
        ("all_pass", [{"result": 1}], 0.0),
        ("all_pass", [{"score": 1.0}], 0.0),
        ("any_pass", [{"result": False}, {"result": True}], 1.0),
        ("any_pass", [{"result": "yes"}], 0.0),
        ("weighted_average", [row(0.5), row(1.0)], 0.75),
        ("weighted_average", [row(result=True), row(result=False)], 0.5),
        ("weighted_average", [row(1.0, 3), row(0.0, 1)], 0.75),
        ("weighted_average", [row(0.5, result=True)], 0.5),
        ("weighted_average", [row(True)], 1.0),
        ("weighted_average", [row(1.0, 1), row(0.0, 0)], 1.0),
        ("weighted_average", [row(1.0, 0)], 0.0),
        ("weighted_average", [row(1.0, -1)], 0.0),
        ("weighted_average", [row(1.0, 2), row(0.0, -1)], 0.5),
        ("weighted_average", [row(1.0, 2), row(1.0, -1)], 1.0),
        ("weighted_average", [row(0.0, 1), row(0.0, -1)], 0.0),
        ("weighted_average", [row(3.0)], 1.0),
        ("weighted_average", [row(-3.0)], 0.0),
    ],
)
def test_rows_make_the_public_frameworks_score(aggregator: str, rows: Any, score: float) -> None:
    assert aggregate(rows, aggregator) == score


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(-5, 5)), max_size=8))
def test_a_weighted_average_is_between_0_and_1(pairs: list[tuple[float, float]]) -> None:
    assert 0.0 <= aggregate([row(score, weight) for score, weight in pairs], "weighted_average") <= 1.0


@pytest.mark.parametrize("rows", [[{"score": None}], [{"score": 1, "weight": math.inf}], [row(1e308, 1e308)] * 2])
def test_rows_that_make_no_number_are_refused(rows: Any) -> None:
    with pytest.raises(ValueError, match="no score"):
        aggregate(rows, "weighted_average")


def test_the_reward_function_cannot_change_the_scores() -> None:
    scores = {"a": 1.0}

    def reward(given: Any) -> float:
        given["b"] = 2.0
        return 0.5

    assert reward_of(scores, reward) == 0.5
    assert scores == {"a": 1.0}


def test_no_scores_make_no_reward_by_themselves() -> None:
    with pytest.raises(ValueError, match=r"0 scores \(none\)"):
        reward_of({}, None)


def test_a_command_line_names_the_mean_or_a_step() -> None:
    assert reward_named(None) is None
    assert reward_named("score") == "score"
    assert reward_of({"a": 1.0, "b": 0.5}, reward_named("mean")) == 0.75
