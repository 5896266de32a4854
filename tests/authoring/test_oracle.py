"""A bundle's oracle.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent_env.authoring.oracle import Oracle, OracleError, load_oracle

GOOD = """
from moves import policy

POLICIES = {"first": policy, "second": policy}
SCORES = {"first": 1}
SPLIT = "eval"
REWARD = "mean"
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "moves.py").write_text(
        f"where = {folder.name!r}\n\ndef policy(messages, tools, request):\n    return where\n"
    )
    (folder / "oracle.py").write_text(text)
    return folder


def test_a_bundle_without_one_has_no_policies(tmp_path: Path) -> None:
    assert load_oracle(tmp_path) == Oracle()
    assert load_oracle(tmp_path).best is None


def test_it_defines_policies_scores_split_and_reward(tmp_path: Path) -> None:
    oracle = load_oracle(write(tmp_path / "b", GOOD))
    assert list(oracle.policies) == ["first", "second"]
    assert (dict(oracle.scores), oracle.split, oracle.reward, oracle.best) == ({"first": 1.0}, "eval", "mean", "first")


def test_the_policy_named_oracle_is_the_best_wherever_it_stands() -> None:
    assert Oracle(policies={"greedy": print, "oracle": print}).best == "oracle"  # type: ignore[dict-item]


def test_modules_beside_it_are_its_own_and_leave_no_trace(tmp_path: Path) -> None:
    path = list(sys.path)
    both = [load_oracle(write(tmp_path / name, GOOD)).policies["first"] for name in ("one", "two")]
    assert [policy([], [], {}) for policy in both] == ["one", "two"]
    assert "moves" not in sys.modules
    assert sys.path == path
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("POLICIES = {", "SyntaxError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("1 / 0", "ZeroDivisionError"),
        ("", "it must define POLICIES"),
        ("POLICIES = {'a': 1}", "it must define POLICIES"),
        ("POLICIES = {}\nSCORES = {'a': 'high'}", "SCORES must be"),
    ],
)
def test_what_is_wrong_with_it_is_told_in_a_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(OracleError, match=why) as raised:
        load_oracle(write(tmp_path / "b", text))
    assert str(raised.value).startswith(str(tmp_path / "b" / "oracle.py"))
