"""Days of prices from a file: a CSV, or the workbook that ERCOT publishes a year's day-ahead prices in.

Days that belong together (one date's at several hubs) stay together, so that the splits never share a date.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

HOURS = 24
LEAST_GROUPS = 11  # every 11th is for eval

PriceDay = tuple[int, str, list[int]]
"""Month, hub, 24 prices in cents per MWh."""
Group = tuple[PriceDay, ...]
"""The days that must be in one split."""

POINTS = {f"HB_{hub}": hub for hub in ("HOUSTON", "NORTH", "SOUTH", "WEST")}
"""ERCOT's settlement points that are taken -> our hubs; others (averages, load zones) are left out."""
DATE, HOUR, FLAG, POINT, PRICE = COLUMNS = (
    "Delivery Date",
    "Hour Ending",
    "Repeated Hour Flag",
    "Settlement Point",
    "Settlement Point Price",
)


@dataclass(frozen=True)
class Prices:
    groups: list[Group]
    skipped: int = 0
    """Dates that don't have 24 hours: summer time begins or ends."""


def read_prices(path: Path) -> Prices:
    """The days of a file, by its ending. Raises ValueError, which names the line or the sheet, and OSError."""
    prices = read_workbook(path) if path.suffix == ".xlsx" else read_csv(path)
    if len(prices.groups) < LEAST_GROUPS:
        found = len(prices.groups)
        raise ValueError(f"{path}: {found} days are too few for two splits; give at least {LEAST_GROUPS}")
    return prices


def read_csv(path: Path) -> Prices:
    """A day a row: month (1 to 12), hub, 24 prices in $ per MWh; lines that begin with # are left out."""
    groups: list[Group] = []
    with open(path, newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.reader(lines), start=1):
            if not row or row[0].startswith("#"):
                continue
            try:
                month, hub, *dollars = row
                prices = [round(float(price) * 100) for price in dollars]
                if len(prices) != HOURS or not 1 <= int(month) <= 12:
                    raise ValueError(f"month {month}, {len(prices)} prices")
            except (ValueError, OverflowError) as error:
                raise ValueError(f"{path}, line {number}: expected month, hub and {HOURS} prices: {error}") from None
            groups.append(((int(month), hub.strip(), prices),))
    return Prices(groups)


def read_workbook(path: Path) -> Prices:
    """ERCOT's Historical DAM Load Zone and Hub Prices (report 13060): a sheet a month, COLUMNS in each."""
    try:
        import openpyxl
    except ImportError:
        raise ValueError(f"{path}: reading a workbook needs the package openpyxl: pip install openpyxl") from None
    try:
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises what zip files, XML and its own code raise
        raise ValueError(f"{path}: it is no workbook: {error}") from error
    try:
        return days_of((sheet.title, row) for sheet in workbook for row in sheet.iter_rows(values_only=True))
    except ValueError as error:
        raise ValueError(f"{path}, {error}") from None
    finally:
        workbook.close()


def days_of(rows: Iterable[tuple[str, Sequence[Any]]]) -> Prices:
    """The days in (sheet, row) pairs; each sheet's first row names its columns. Raises ValueError."""
    cents: dict[tuple[date, str], dict[tuple[int, bool], int]] = {}
    for sheet, number, row in _records(rows):
        hub = POINTS.get(str(row[POINT]).strip())
        if hub is None:
            continue
        try:
            hour = (int(str(row[HOUR])[:2]), str(row[FLAG]).strip() == "Y")
            cents.setdefault((_date(row[DATE]), hub), {})[hour] = round(float(row[PRICE]) * 100)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"sheet {sheet!r}, row {number}: {error}") from None
    wanted = {(hour, False) for hour in range(1, HOURS + 1)}
    whole: dict[date, list[PriceDay]] = {}
    skipped = set()
    for (day, hub), by_hour in sorted(cents.items()):
        if set(by_hour) == wanted:
            whole.setdefault(day, []).append((day.month, hub, [by_hour[hour] for hour in sorted(by_hour)]))
        else:
            skipped.add(day)
    return Prices([tuple(days) for days in whole.values()], len(skipped))


def _records(rows: Iterable[tuple[str, Sequence[Any]]]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """(sheet, row number, what is in its columns by name) of each row with a date."""
    current, number, names = None, 0, []
    for sheet, row in rows:
        if sheet != current:
            current, number, names = sheet, 1, [str(name).strip() for name in row]
            missing = [name for name in COLUMNS if name not in names]
            if missing:
                raise ValueError(f"sheet {sheet!r}: no column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
            continue
        number += 1
        record = dict(zip(names, row, strict=False))
        if record.get(DATE) is not None:
            yield sheet, number, record


def _date(value: Any) -> date:
    """A cell with a date, or text as 12/31/2022."""
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else datetime.strptime(str(value).strip(), "%m/%d/%Y").date()
