"""`agent-env new`: a bundle that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env.authoring.new import NewError, write_bundle
from agent_env.authoring.oracle import load_oracle
from agent_env.bundle import load_bundle
from agent_env.cli import main


def test_a_new_bundle_has_a_split_and_no_problem(tmp_path: Path) -> None:
    files = list(write_bundle(tmp_path / "my-bundle"))
    assert all(file.is_file() for file in files)
    bundle = load_bundle(tmp_path / "my-bundle")
    assert {name: len(split.tasks) for name, split in bundle.splits.items()} == {"all": 3, "eval": 2}
    assert (bundle.left_out, list(bundle.envs)) == ((), ["guess"])
    assert [task.reward_step for task in bundle.splits["all"].tasks] == ["score"] * 3
    assert load_oracle(bundle.folder).best == "oracle"


def test_its_files_carry_its_name_and_no_placeholder(tmp_path: Path) -> None:
    texts = [file.read_text() for file in write_bundle(tmp_path / "my-bundle")]
    assert not any("NAME" in text for text in texts)
    assert sum("urn:my-bundle:set-secret/v1" in text for text in texts) == 4


@pytest.mark.parametrize("name", ["My-Bundle", "-x", "two words", "x-", ".hidden", "naïve"])
def test_a_name_that_cannot_name_a_bundle_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(NewError, match="lower-case"):
        list(write_bundle(tmp_path / name))
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(NewError, match="there already"):
        list(write_bundle(tmp_path / "mine"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    assert list(write_bundle(tmp_path / "mine"))


def test_the_command_names_the_next_steps_or_the_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", str(tmp_path / "mine")]) == 0
    assert f"agent-env check {tmp_path / 'mine'}" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "mine")]) == 0
    assert main(["new", str(tmp_path / "mine")]) == 2
    assert capsys.readouterr().err.startswith("agent-env new: ")
