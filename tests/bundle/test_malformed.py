"""Every problem of a broken bundle is found, with its file and place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import BundleError, load_bundle
from tests.bundle import good
from tests.bundle.malformed import CORPUS
from tests.bundle.malformed.breaks import write


@pytest.mark.parametrize("name", CORPUS)
def test_every_problem_is_found_with_its_file_and_place(name: str, tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    (folder / "skills").mkdir()
    breaks, expected = CORPUS[name]
    breaks(folder)
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    found = raised.value.problems
    assert [(problem.file, problem.place) for problem in found] == sorted((e.file, e.place) for e in expected)
    for problem in found:
        parts = [e.what for e in expected if (e.file, e.place) == (problem.file, problem.place)]
        assert any(part in problem.what for part in parts), problem
        assert problem.fix
        assert str(problem) in str(raised.value)


def test_problems_of_all_files_are_told_together(tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    (folder / "skills").mkdir()
    names = ["unknown env", "line whose replayable is a text", "env.toml with an unknown key", "alias is no list"]
    for name in names:
        CORPUS[name][0](folder)
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    places = {(problem.file, problem.place) for problem in raised.value.problems}
    expected = {(e.file, e.place) for name in names for e in CORPUS[name][1]}
    assert expected <= places
    assert str(raised.value).startswith(f"{folder}: {len(raised.value.problems)} problems\n")


def test_a_broken_env_is_not_told_again_by_each_task_that_names_it(tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    write("envs/shop/env.toml", "typo = 1")(folder)
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(
    "path", ["", "envs", "envs/shop", "artifacts/check", "tasks", "tasks/first.json", "aliases.toml"]
)
def test_what_cannot_be_read_is_told(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user's files; the tests' own user may be root, who reads everything."""
    folder = good.make(tmp_path)
    real = {name: getattr(os, name) for name in ("listdir", "scandir", "open")}

    def denied(name: str) -> Callable[..., Any]:
        def call(target: Any, *arguments: Any) -> Any:
            if Path(target) == folder / path:
                raise PermissionError(13, "Permission denied", str(target))
            return real[name](target, *arguments)

        return call

    for name in real:
        monkeypatch.setattr(os, name, denied(name))
    with pytest.raises(BundleError) as raised:
        load_bundle(folder)
    assert (path, "it can't be read (Permission denied)") in {(p.file, p.what) for p in raised.value.problems}


@pytest.mark.parametrize(("make", "what"), [(lambda path: None, "no folder"), (lambda path: path.touch(), "a file")])
def test_what_is_no_folder_is_no_bundle(tmp_path: Path, make: Callable[[Path], None], what: str) -> None:
    make(tmp_path / "x")
    with pytest.raises(BundleError, match=what):
        load_bundle(tmp_path / "x")


def test_a_folder_without_any_kind_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    with pytest.raises(BundleError, match="no bundle; it needs at least one of envs/, agents/"):
        load_bundle(tmp_path)
