"""`agent-env eval` and `agent-env compare`, run as a user does."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent_env.bundle import resolve_bundles
from agent_env.evaluate.results import read_results
from agent_env.training.policies import greedy, read_day

pytestmark = pytest.mark.integration


def command(*arguments: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "agent_env.cli", *arguments], cwd=cwd, capture_output=True, text=True, timeout=110
    )
    assert not check or done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done


def score(prompt: str) -> float:
    """What the greedy schedule is worth, computed here from the prompt's numbers, by plain recursion."""
    day, plan = read_day(prompt), greedy(read_day(prompt))

    def profit(hour: int, stored: int, best: dict[tuple[int, int], int]) -> int:
        if hour == 24:
            return 0
        if (hour, stored) not in best:
            moves = [(profit(hour + 1, stored, best), 0)]
            if stored < day.duration:
                moves.append((profit(hour + 1, stored + 1, best) - day.power * day.prices[hour] * 100, 1))
            if stored:
                sale = day.prices[hour] * day.efficiency - day.wear * 100
                moves.append((profit(hour + 1, stored - 1, best) + day.power * sale, -1))
            best[hour, stored] = max(moves)[0]
        return best[hour, stored]

    made = sum(
        -n * day.prices[hour] * 100 if n > 0 else -n * (day.prices[hour] * day.efficiency - day.wear * 100)
        for hour, n in enumerate(plan)
    )
    return 0.2 + 0.8 * (made / profit(0, 0, {}))


def test_greedy_scores_what_an_independent_oracle_computes(tmp_path: Path) -> None:
    done = command(
        "eval", "gridsim-v1", "--policy", "greedy", "--tasks", "24", "--samples", "2", "--traces", cwd=tmp_path
    )
    run = tmp_path / "runs" / "gridsim_v1-eval-greedy"
    results = read_results(run)
    tasks = resolve_bundles("gridsim-v1").splits["eval"].tasks
    assert {result.key for result in results} == {("eval", index, sample) for index in range(24) for sample in range(2)}
    for result in results:
        assert result.reward == pytest.approx(score(tasks[result.index].turns[0].prompt), abs=1e-9)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["reward_scored"]["mean"] == pytest.approx(sum(r.reward for r in results) / 48, abs=1e-9)
    assert set(summary["by_tag"]["duration"]) <= {"1h", "2h", "4h"}
    assert (run / "report.html").exists()
    assert {f"{result.episode_id}.jsonl" for result in results} <= {path.name for path in (run / "traces").iterdir()}
    assert "mean" in done.stdout


def test_a_killed_run_goes_on_with_what_is_left(tmp_path: Path) -> None:
    arguments = ["eval", "gridsim-v1", "--policy", "idle", "--tasks", "60", "--concurrency", "4", "--out", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_env.cli", *arguments],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    results = tmp_path / "run" / "results.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not results.exists() or len(results.read_bytes().splitlines()) < 8):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = read_results(results)
    assert 8 <= len(before) < 60
    done = command(*arguments, cwd=tmp_path)
    after = read_results(results)
    assert after[: len(before)] == before
    assert sorted(result.index for result in after) == list(range(60))
    assert f"{len(before)} of 60 episodes are in" in done.stdout


def test_two_runs_are_compared_task_by_task(tmp_path: Path) -> None:
    for policy in ("idle", "optimum"):
        command("eval", "gridsim-v1", "--policy", policy, "--tasks", "8", "--out", policy, cwd=tmp_path)
    done = command("compare", "idle", "optimum", cwd=tmp_path)
    assert "B - A  +0.800 [+0.800, +0.800] over 8 tasks: differs from 0" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gridsim-v1"], "say what plays"),
        (["gridsim-v1", "--policy", "greedyy"], "no policy 'greedyy'"),
        (["gridsim-v1", "--policy", "idle", "--split", "tset"], "there are all, eval, train"),
        (["nonsuch", "--policy", "idle"], "nonsuch"),
        (["gridsim-v1", "--policy", "idle", "--base-url", "http://127.0.0.1:1"], "say what plays"),
        (["gridsim-v1", "--base-url", "http://127.0.0.1:1/v1"], "--model"),
        (["gridsim-v1", "--base-url", "http://127.0.0.1:1", "--model", "m", "--key-var", "UNSET_KEY"], "UNSET_KEY"),
        (["http://127.0.0.1:1", "--policy", "idle"], "127.0.0.1:1"),
        (["gridsim-v1", "--policy", "idle", "--extra", "[1]"], "--extra"),
        (["gridsim-v1", "--policy", "idle", "--samples", "0"], "--samples"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = command("eval", *arguments, "--out", "run", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "run" / "results.jsonl").exists()


def test_a_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    command("eval", "gridsim-v1", "--policy", "idle", "--tasks", "1", "--out", "run", cwd=tmp_path)
    done = command("eval", "gridsim-v1", "--policy", "idle", "--tasks", "2", "--out", "run", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "another tasks" in done.stderr
