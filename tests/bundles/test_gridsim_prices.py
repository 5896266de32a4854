"""Days with prices of one's own: `build.py --prices FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundles.gridsim import build

ROW = "7, NORTH," + ",".join(["20.5"] * 23) + ",-3\n"


class Counting:
    """Stands in for numpy's generator: draws 0, 1, 2, ... below the limit it is given."""

    def __init__(self) -> None:
        self.drawn = -1

    def integers(self, low: int, high: int) -> int:
        self.drawn += 1
        return low + self.drawn % (high - low)


def test_a_day_is_a_row_of_month_hub_and_dollars(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text("# month, hub, prices\n\n" + ROW * 11)
    assert build.read_prices(path) == [(7, "NORTH", [2050] * 23 + [-300])] * 11


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("7\n", "not enough values"),
        ("13, NORTH," + ",".join(["1"] * 24) + "\n", "month 13"),
        ("7, NORTH," + ",".join(["1"] * 23) + "\n", "23 prices"),
        ("7, NORTH," + ",".join(["1"] * 23) + ",x\n", "could not convert"),
        ("7, NORTH," + ",".join(["1"] * 23) + ",nan\n", "NaN"),
        ("7, NORTH," + ",".join(["1"] * 23) + ",inf\n", "infinity"),
    ],
)
def test_a_row_that_is_no_day_is_refused_by_its_line(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "days.csv"
    path.write_text(ROW + row)
    with pytest.raises(ValueError, match=rf"line 2: .*{why}"):
        build.read_prices(path)


def test_too_few_days_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "days.csv"
    path.write_text(ROW * 10)
    with pytest.raises(ValueError, match="10 days are too few"):
        build.read_prices(path)


def test_the_splits_never_share_a_day() -> None:
    days = [(1, str(number), [number] * 24) for number in range(50)]
    drawn = {}
    for split in ("train", "eval"):
        prices_from, rng = build.recorded(days, split), Counting()
        drawn[split] = {prices_from(rng)[1] for _ in range(100)}
    assert drawn["eval"] == {"0", "11", "22", "33", "44"}
    assert drawn["train"] == {str(number) for number in range(50)} - drawn["eval"]
