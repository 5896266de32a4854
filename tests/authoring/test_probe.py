"""`agent-env probe`, over real envs: what it finds in bundles that were broken on purpose, and in ours."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_env.authoring.new import write_bundle
from agent_env.cli import main

ROOT = Path(__file__).parents[2] / "bundles"

Probe = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A new bundle, to be broken."""
    list(write_bundle(tmp_path / "guessing"))
    return tmp_path / "guessing"


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    """Runs the command; gives its exit code and its JSON report."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        report = tmp_path / "report.json"
        code = main(["probe", *map(str, arguments), "--json", str(report)])
        return code, json.loads(report.read_text()) if report.exists() else {}

    return run


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def kinds(report: dict[str, Any]) -> set[str]:
    return {finding["kind"] for finding in report["findings"]}


@pytest.mark.integration
def test_a_new_bundle_is_sound(bundle: Path, probe: Probe, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = probe(bundle)
    assert (code, report["findings"]) == (0, [])
    means = {name: policy["mean"] for name, policy in report["policies"].items()}
    assert (means["oracle"], means["no-op"]) == (1.0, 0.0)
    assert len(report["plays"]) == 3 * 4 * 2
    assert all(play["seconds"] > 0 and play["end_reason"] == "end_turn" for play in report["plays"])
    assert "nothing found" in capsys.readouterr().out


@pytest.mark.integration
def test_a_reward_for_nothing_and_a_mean_that_is_not_the_documented_one_are_found(bundle: Path, probe: Probe) -> None:
    change(bundle / "artifacts" / "check_guess" / "verify.py", "score, why = 0.0,", "score, why = 1.0,")
    code, report = probe(bundle)
    assert code == 1
    assert kinds(report) == {"constant", "hack", "score"}


@pytest.mark.integration
def test_a_verifier_that_fails_on_what_a_policy_does_is_found(bundle: Path, probe: Probe) -> None:
    change(bundle / "artifacts" / "check_guess" / "verify.py", "if secret not in guesses:", "if guesses[0] < 0:")
    code, report = probe(bundle, "--plays", "1", "--tasks", "1")
    assert code == 1
    assert "unscored" in kinds(report)
    (finding,) = [one for one in report["findings"] if one["kind"] == "unscored" and "no-op" in one["what"]]
    assert "IndexError" in finding["what"] or "list index" in finding["what"]


@pytest.mark.integration
def test_an_env_that_answers_by_chance_is_found(bundle: Path, probe: Probe) -> None:
    server = bundle / "envs" / "guess" / "server.py"
    change(server, 'return "right"', 'import os; return f"right {os.urandom(4).hex()}"')
    change(bundle / "oracle.py", 'if said == "right":', 'if said.startswith("right"):')
    code, report = probe(bundle, "--tasks", "1")
    assert code == 1
    assert kinds(report) == {"nondeterministic"}
    assert "result" in report["findings"][0]["what"]


@pytest.mark.integration
def test_an_oracle_that_does_not_fit_the_tools_is_found(bundle: Path, probe: Probe) -> None:
    change(bundle / "oracle.py", 'said = yield call("guess", number=number)', 'said = yield call("guess", n=number)')
    change(bundle / "oracle.py", 'if said == "right":', "if number == 1:")
    change(bundle / "oracle.py", 'if said == "higher" else', "if False else")
    code, report = probe(bundle, "--tasks", "1", "--plays", "1")
    assert code == 1
    assert {"oracle", "hack"} <= kinds(report)


@pytest.mark.integration
def test_without_an_oracle_the_untrained_play_alone(bundle: Path, probe: Probe) -> None:
    (bundle / "oracle.py").write_text("raise RuntimeError('not to be run')")
    code, report = probe(bundle, "--no-oracle", "--tasks", "2", "--plays", "1")
    assert code == 1  # both get nothing on everything
    assert set(report["policies"]) == {"no-op", "random"}
    assert kinds(report) == {"constant"}
    assert {play["task"].rpartition("/")[2] for play in report["plays"]} == {"forty-two", "high"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no-such-bundle"], "no installed bundle"),
        (["gridsim-v1", "--split", "dev"], "there is no split 'dev'; there are all, eval, train"),
        (["gridsim-v1", "--plays", "0"], "--plays must be at least 1"),
        (["gridsim-v1", "--reward", "total", "--tasks", "1"], "no score 'total'"),
        (["gridsim-v1", "--sandbox", "vm", "--tasks", "1"], "sandbox 'vm' is not known"),
    ],
)
def test_what_cannot_be_probed_is_told_in_a_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("agent-env probe: ")
    assert said in error


def test_an_oracle_that_cannot_be_loaded_is_told(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bundle / "oracle.py").write_text("POLICIES = 3")
    assert main(["probe", str(bundle)]) == 2
    assert "it must define POLICIES" in capsys.readouterr().err


@pytest.mark.integration
def test_ctrl_c_leaves_nothing_behind(bundle: Path) -> None:
    change(bundle / "envs" / "guess" / "server.py", "self.guesses.append(number)", "import time; time.sleep(54321)")
    command = [sys.executable, "-m", "agent_env.cli", "probe", str(bundle)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT.parent)
    try:
        deadline = time.monotonic() + 60
        while sum(p.name().startswith("env-") for p in psutil.Process(process.pid).children(recursive=True)) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (130, "")
        assert psutil.wait_procs(children, timeout=10)[1] == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(path.name for path in ROOT.iterdir() if (path / "tasks").is_dir()))
def test_our_bundles_are_sound_and_score_what_they_document(name: str, probe: Probe) -> None:
    code, report = probe(ROOT / name)
    assert (code, report["findings"]) == (0, [])
    assert report["policies"]["oracle"]["mean"] == 1.0


@pytest.mark.integration
@pytest.mark.parametrize("name", ["gridsim-v1", "helpdesk-v1", "terminal-v1"])
def test_a_few_tasks_of_our_bundles_are_sound(name: str, probe: Probe) -> None:
    code, report = probe(name, "--tasks", "3")
    assert (code, report["findings"]) == (0, [])
    assert (report["policies"]["oracle"]["mean"], report["policies"]["no-op"]["mean"]) == (1.0, 0.0)
