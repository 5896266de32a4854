"""The benchmarks run: each says what it does, and the shared parts do what they say."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = ("capacity", "deploy", "footprint", "kill", "live", "openenv", "parts", "rows", "run_all", "trainer")


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("common")
    for name in ("common", "driver", "live", "openenv", "parts", "rows", "trainer", "footprint", "run_all", "capacity"):
        sys.modules.pop(name, None)


def test_every_script_is_known() -> None:
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == {*SCRIPTS, "common", "driver"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name: str) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "--json FILE" in done.stdout


def test_percentiles_are_of_the_values(common: ModuleType) -> None:
    assert [common.percentile([3, 1, 2], share) for share in (0.0, 0.5, 1.0)] == [1, 2, 3]
    assert common.percentile([7], 0.99) == 7


def test_a_table_has_aligned_columns(common: ModuleType) -> None:
    rows = [{"what": "a", "n": 1.5}, {"what": "long", "n": None}]
    assert common.table(rows).splitlines() == ["what     n", "a     1.50", "long     -"]


def test_goals_tell_what_is_missed(common: ModuleType) -> None:
    run_all = importlib.import_module("run_all")
    crowd = {"live": 1000, "scored": 999, "MiB each": 3.9, "call p99": 300.0}
    assert [goal["met"] for goal in run_all.goals_of_crowds([crowd])] == ["NO", "yes", "NO"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("openenv", ["--servers", "ours", "--sessions", "2", "--rounds", "1", "--seconds", "0.1", "--no-footprint"]),
        ("live", ["--sessions", "4", "--calls", "1", "--think", "0.01"]),
        ("rows", ["--tasks", "20"]),
        ("trainer", ["--rollouts", "4", "--rounds", "1"]),
        ("capacity", ["--sessions", "4", "--rollouts", "256"]),
        ("kill", ["--live", "3", "--kills", "1"]),
    ],
)
def test_a_small_run_gives_figures_and_no_failure(name: str, options: list[str], tmp_path: Path) -> None:
    written = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *options, "--json", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    result = json.loads(written.read_text())
    assert {"date", "cores", "memory_gib"} <= set(result["machine"])
    assert result["rows"]
    [row] = result["rows"]
    assert row.get("failed", 0) == 0
    if name in ("live", "trainer"):
        assert row["scored"] == 4


@pytest.mark.integration
def test_the_parts_of_an_episode_are_told_apart(tmp_path: Path) -> None:
    written = tmp_path / "result.json"
    command = [
        sys.executable,
        str(BENCHMARKS / "parts.py"),
        "--sessions",
        "2",
        "--episodes",
        "20",
        "--json",
        str(written),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    spent = {row["part"]: row["ms"] for row in json.loads(written.read_text())["rows"]}
    parts = ["server", "env's process", "verifier's process", "fork servers"]
    assert list(spent) == [*parts, "machine"]
    assert all(spent[part] > 0 for part in parts)
