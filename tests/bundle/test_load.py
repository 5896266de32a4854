"""What a good bundle is read as: its name, artifacts, splits and lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_env.bundle import Bundle, load_bundle
from agent_env.bundle.steps import EnvOutcomeVerifier
from tests.bundle import good


def names(bundle: Bundle, split: str) -> list[str]:
    return [task.name for task in bundle.splits[split].tasks]


def test_name_description_and_envs(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert (bundle.name, bundle.description) == ("shop-v1", "Sells things.")
    env = bundle.envs["shop"]
    assert env.folder == folder.resolve() / "envs" / "shop"
    assert env.command == ("python", "server.py")
    assert env.environ == {"GREETING": "hello there", "MODE": "fast"}
    assert (env.workdir, env.python, env.needs_docker) == ("/app", "3.11", None)
    assert env.environment_name == "shop"
    assert env.requirements == env.folder / "requirements.txt"
    assert env.dockerfile == env.folder / "Dockerfile"


@pytest.mark.parametrize(
    ("readme", "description"),
    [
        ("", ""),
        ("# Title only\n", ""),
        ("---\ntitle: x\n---\n\n# T\n<p>\n[![badge](x)](y)\n![image](x)\n\nWhat it is.\nMore.\n", "What it is."),
        ("\ufeffFirst line.\r\nSecond.\r\n", "First line."),
    ],
)
def test_the_description_is_the_first_text_of_the_readme(folder: Path, readme: str, description: str) -> None:
    (folder / "README.md").write_text(readme, encoding="utf-8")
    assert load_bundle(folder).description == description


def test_artifacts_have_their_types_and_files(folder: Path) -> None:
    (folder / "artifacts" / "check" / "__pycache__").mkdir()
    (folder / "artifacts" / "check" / "__pycache__" / "verify.pyc").touch()
    (folder / "artifacts" / "many").mkdir()
    for name in ("b.txt", "a.txt"):
        (folder / "artifacts" / "many" / name).touch()
    artifacts = load_bundle(folder).artifacts
    assert {name: artifact.type for name, artifact in artifacts.items()} == {
        "check": "file",
        "many": "file_artifact_universe",
        "stock": "environment",
    }
    assert [path.name for path in artifacts["check"].files] == ["verify.py"]
    assert [path.name for path in artifacts["many"].files] == ["a.txt", "b.txt"]
    assert [path.name for path in artifacts["stock"].files] == ["stock.json"]
    assert artifacts["stock"].environment_name == "shop"


def test_splits_are_all_in_file_order_and_one_for_each_eval_in_its_own(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert list(bundle.splits) == ["all", "some", "train"]
    assert names(bundle, "all") == ["first", "more-0", "more-1", "more-2"]
    assert names(bundle, "some") == ["more-2", "first"]


def test_an_eval_may_name_a_jsonl_file_for_all_of_its_tasks(folder: Path) -> None:
    assert names(load_bundle(folder), "train") == ["more-0", "more-1", "more-2"]


def test_a_line_may_say_replayable_and_tags(folder: Path) -> None:
    line = {"name": "día/7 \u4e2d", "steps": good.steps(), "replayable": False, "tags": {"size": "4h"}}
    (folder / "tasks" / "zz.jsonl").write_text(json.dumps(line) + "\n\n")
    task = load_bundle(folder).splits["all"].tasks[-1]
    assert (task.name, task.replayable, task.tags) == ("día/7 \u4e2d", False, {"size": "4h"})


def test_line_separators_inside_texts_split_no_line(folder: Path) -> None:
    text = json.dumps({"name": "sep", "steps": good.steps(prompt="a\u2028b\u0085c")}, ensure_ascii=False)
    (folder / "tasks" / "zz.jsonl").write_text(text + "\r\n", encoding="utf-8")
    assert load_bundle(folder).splits["all"].tasks[-1].turns[0].prompt == "a\u2028b\u0085c"


def test_aliases_and_declared_ids_mean_the_folder(folder: Path) -> None:
    (folder / "envs" / "shop" / "env.toml").write_text("id = '@local/the-shop'\n")
    (folder / "artifacts" / "check" / "artifact.toml").write_text("id = '@local/the-check'\n")
    steps = good.steps()
    steps[0]["env_id"] = "store"
    steps[3]["env_ids"] = ["@local/the-shop"]
    steps[5]["file_artifact_id"] = "@local/the-check"
    (folder / "tasks" / "first.json").write_text(json.dumps(steps))
    bundle = load_bundle(folder)
    task = bundle.splits["all"].tasks[0]
    assert task.env_ids == task.turns[0].env_ids == ("shop",)
    assert isinstance(task.steps[5], EnvOutcomeVerifier)
    assert task.steps[5].file_artifact_id == "check"
    assert bundle.envs["store"] is bundle.envs["shop"]


def test_dot_files_caches_and_loose_files_are_no_part_of_a_bundle(folder: Path) -> None:
    for path in ("envs/.cache/x", "envs/__pycache__/x", "envs/notes.txt", "tasks/README.md", ".git/config"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    assert set(load_bundle(folder).envs) == {"shop", "store"}


def test_nothing_of_a_bundle_is_run(folder: Path, tmp_path: Path) -> None:
    bomb = f"open({str(tmp_path / 'ran')!r}, 'w')\nasync def verify(mcp_url): ...\n"
    (folder / "artifacts" / "check" / "verify.py").write_text(bomb)
    (folder / "envs" / "shop" / "server.py").write_text(bomb)
    load_bundle(folder)
    assert not (tmp_path / "ran").exists()
