"""What a server is told to serve: folders, installed names, mappings, rewards."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agent_env.bundle import BundleError, BundleNotFound, check_reward, load_bundle, resolve_bundles
from agent_env.bundle.installed import find_installed, installed_names
from tests.bundle import good


def test_a_folder_is_served_with_all_of_its_splits(folder: Path) -> None:
    served = resolve_bundles(folder)
    bundle = served.bundles[0]
    assert list(served.splits) == ["all", "some", "train"]
    assert set(served.bundle_of) == set(served.splits)
    assert (served.name, served.description, served.fingerprint) == ("shop-v1", "Sells things.", bundle.fingerprint)
    assert resolve_bundles(str(folder)).fingerprint == served.fingerprint


def test_a_loaded_bundle_is_taken_as_it_is(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert resolve_bundles(bundle).bundle_of["all"] is bundle


def test_a_folder_of_the_working_directory_needs_no_slash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert resolve_bundles("shop-v1").bundles[0].folder == folder.resolve()


def test_a_home_relative_path_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert resolve_bundles("~/shop-v1").name == "shop-v1"


def test_a_mapping_serves_every_task_of_each_bundle_as_a_split(folder: Path, tmp_path: Path) -> None:
    other = good.make(tmp_path, "shop-v2")
    served = resolve_bundles({"train": folder, "eval": str(other), "again": folder})
    assert {name: len(split.tasks) for name, split in served.splits.items()} == {"train": 4, "eval": 4, "again": 4}
    assert [split.name for split in served.splits.values()] == ["train", "eval", "again"]
    assert served.name == "shop-v1+shop-v2"
    assert [bundle.name for bundle in served.bundles] == ["shop-v1", "shop-v2"]
    assert served.bundle_of["train"] is served.bundle_of["again"]
    assert served.splits["eval"].tasks[0].id == "@local/shop-v2/first"


def test_a_mappings_fingerprint_holds_names_and_bundles(folder: Path, tmp_path: Path) -> None:
    other = good.make(tmp_path, "shop-v2")
    (other / "tasks" / "more.jsonl").write_text(json.dumps({"name": "x", "steps": good.steps()}))
    (other / "evals" / "some.toml").unlink()
    sources = [{"a": folder}, {"b": folder}, {"a": other}, {"a": folder, "b": other}, {"a": other, "b": folder}]
    assert len({resolve_bundles(source).fingerprint for source in sources}) == 5


def test_two_bundles_of_one_name_are_refused(folder: Path, tmp_path: Path) -> None:
    other = good.make(tmp_path / "other")
    with pytest.raises(BundleError, match="two bundles are named 'shop-v1'"):
        resolve_bundles({"train": folder, "eval": other})


@pytest.mark.parametrize("split", ["", "a/b", ".hidden"])
def test_what_can_be_no_file_name_names_no_split(split: str, folder: Path) -> None:
    with pytest.raises(BundleError, match="can't name a split"):
        resolve_bundles({split: folder})


def test_an_empty_mapping_is_refused() -> None:
    with pytest.raises(BundleError, match="names no split"):
        resolve_bundles({})


@pytest.mark.parametrize("address", ["gridsim-v9", "./nowhere", "/nowhere/at/all", "~nobody-here/x", ""])
def test_what_is_not_there_is_not_found_and_names_what_is(address: str) -> None:
    with pytest.raises(BundleNotFound, match="no such folder"):
        resolve_bundles(address)


def test_a_misspelled_name_gets_the_nearest() -> None:
    with pytest.raises(BundleNotFound, match="did you mean 'gridsim-v1'"):
        resolve_bundles("gridsm-v1")


def test_a_path_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(BundleNotFound, match="no such folder"):
        resolve_bundles(tmp_path / "gridsim-v1")


def test_a_bundle_without_a_playable_task_is_not_served(tmp_path: Path) -> None:
    folder = good.play(tmp_path, good.steps()[:5])
    with pytest.raises(BundleError, match="tasks: only: the task can't be played: it has no verifier step"):
        resolve_bundles(folder)
    (folder / "tasks" / "only.json").unlink()
    with pytest.raises(BundleError, match="no task that can be played"):
        resolve_bundles({"train": folder})


def test_left_out_tasks_are_those_of_every_bundle(folder: Path, tmp_path: Path) -> None:
    other = good.make(tmp_path, "shop-v2")
    (other / "tasks" / "zz.json").write_text(json.dumps(good.steps()[:5]))
    assert [task.name for task in resolve_bundles({"a": folder, "b": other}).left_out] == ["zz"]


# Installed bundles


def test_our_own_bundles_are_found_by_name() -> None:
    assert "gridsim-v1" in installed_names()
    folder = find_installed("gridsim-v1")
    assert folder is not None
    assert (folder / "tasks").is_dir()


def test_a_package_brings_bundles_by_entry_point_and_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "acme_bundles"
    good.make(package, "acme-v1")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[agent_env.bundles]\nacme-v1 = acme_bundles\nacme-gone = acme_bundles\nacme-lost = acme_lost\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve_bundles("acme-v1").bundles[0].folder == (package / "acme-v1").resolve()
    assert {"acme-v1", "acme-gone", "gridsim-v1"} <= set(installed_names())
    assert find_installed("acme-gone") is None
    assert find_installed("acme-lost") is None
    assert "acme_bundles" not in sys.modules


@pytest.mark.parametrize("name", ["", ".", "..", "../bundles/gridsim-v1", "bundled"])
def test_what_is_no_name_finds_nothing(name: str) -> None:
    assert find_installed(name) is None


# Rewards


@pytest.fixture
def two_scores(folder: Path) -> Path:
    """The bundle, with a task that has a second score."""
    steps = [*good.steps(), {**good.steps()[5], "id": "kept", "verifier_id": "kept"}]
    (folder / "tasks" / "zz.json").write_text(json.dumps(steps))
    return folder


@pytest.mark.parametrize("reward", [None, "sold", lambda scores: sum(scores.values())])
def test_a_single_score_needs_no_reward_and_takes_any(reward: object, folder: Path) -> None:
    check_reward(resolve_bundles(folder), reward)  # type: ignore[arg-type]


@pytest.mark.parametrize("reward", ["sold", lambda scores: 0.0])
def test_several_scores_take_a_step_that_all_have_or_a_function(reward: object, two_scores: Path) -> None:
    check_reward(resolve_bundles(two_scores), reward)  # type: ignore[arg-type]


def test_several_scores_need_a_reward(two_scores: Path) -> None:
    with pytest.raises(BundleError) as raised:
        check_reward(resolve_bundles(two_scores), None)
    (problem,) = raised.value.problems
    assert problem.what == "task 'zz' gives several scores ('sold', 'kept'), and nothing says which is the reward"
    assert "pass reward=" in problem.fix


def test_a_reward_that_some_tasks_lack_names_them_and_their_scores(two_scores: Path) -> None:
    with pytest.raises(BundleError, match="4 tasks, as 'first', give no score 'kept'; they give 'sold'"):
        check_reward(resolve_bundles(two_scores), "kept")
    with pytest.raises(BundleError, match="task 'zz' gives no score 'x'; it gives 'sold', 'kept'"):
        check_reward(resolve_bundles(two_scores), "x")


def test_rewards_are_checked_in_every_bundle_of_a_mapping(two_scores: Path, tmp_path: Path) -> None:
    served = resolve_bundles({"a": good.make(tmp_path, "shop-v2"), "b": two_scores})
    with pytest.raises(BundleError, match="'zz'"):
        check_reward(served, None)
