"""The command itself, as a process: its table, and that it leaves nothing behind however it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "agent_env.cli", "quickstart"]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Its temporary folder is this test's, and its processes carry a mark, so that what is left can be told."""
    mark = f"AGENT_ENV_TEST_MARK={tmp_path}"
    name, _, value = mark.partition("=")
    yield os.environ | {"TMPDIR": str(tmp_path), name: value, "COLUMNS": "100", "NO_COLOR": "1"}
    for process in marked(tmp_path):
        process.kill()


def marked(tmp_path: Path) -> list[psutil.Process]:
    """The living processes that a quickstart of this test started."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("AGENT_ENV_TEST_MARK") == str(tmp_path) and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            continue
    return found


def assert_nothing_is_left(tmp_path: Path) -> None:
    deadline = time.monotonic() + 10
    while (left := marked(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert [path for path in tmp_path.iterdir() if path.name.startswith("agent-env-quickstart")] == []


def test_it_ends_in_the_table(tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [*COMMAND, "--days", "6", "--group", "4"], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line.split("│")[1].strip(): line for line in done.stdout.splitlines() if line.startswith("│")}
    rewards = {policy: float(line.split("│")[2]) for policy, line in lines.items()}
    assert rewards["idle"] == 0.2
    assert rewards["optimum"] == 1.0
    assert 0.2 <= rewards["greedy"] < 1.0
    assert rewards["malformed"] == rewards["greedy"], "calls that can't be run cost nothing but turns"
    assert all(line.split("│")[6].strip() == "6/6" for line in lines.values())
    assert re.search(r"^wrote all.jsonl, eval.jsonl, train.jsonl to ", done.stdout, re.MULTILINE)
    assert "96 episodes" in done.stdout
    assert done.stderr == ""
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("seen", "stop"),
    [
        ("", signal.SIGINT),
        ("serving", signal.SIGINT),
        ("wrote", signal.SIGINT),
        ("wrote", signal.SIGTERM),
        ("serving", signal.SIGHUP),
        ("wrote", signal.SIGKILL),
    ],
)
def test_stopped_at_any_point_it_leaves_nothing(
    seen: str, stop: signal.Signals, tmp_path: Path, environment: dict[str, str]
) -> None:
    with subprocess.Popen(
        [*COMMAND, "--days", "200"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as quickstart:
        assert quickstart.stdout is not None
        if seen:
            while not quickstart.stdout.readline().startswith(seen):
                pass
        time.sleep(0.5)
        quickstart.send_signal(stop)
        _, err = quickstart.communicate(timeout=30)
    if stop == signal.SIGKILL:  # no process can remove its folder then
        for path in tmp_path.glob("agent-env-quickstart*"):
            path.rename(tmp_path / "left-by-sigkill")
    elif seen:
        assert quickstart.returncode == (130 if stop == signal.SIGINT else 143)
        assert "Traceback" not in err
    assert_nothing_is_left(tmp_path)
