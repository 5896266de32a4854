"""Ways to break the good bundle, and what is expected to be found then."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.bundle import good


class Found(NamedTuple):
    """A problem that is expected: `what` is a part of its text."""

    file: str
    place: str
    what: str


Break = Callable[[Path], Any]


def write(path: str, text: str | bytes) -> Break:
    def breaks(folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())

    return breaks


def rename(old: str, new: str) -> Break:
    return lambda folder: (folder / old).rename(folder / new)


def copy(old: str, new: str) -> Break:
    def breaks(folder: Path) -> None:
        (shutil.copytree if (folder / old).is_dir() else shutil.copy)(folder / old, folder / new)

    return breaks


def remove(path: str) -> Break:
    return lambda folder: (folder / path).unlink()


def task(index: int, **fields: Any) -> Break:
    """Break one step of tasks/first.json."""
    return write("tasks/first.json", json.dumps(good.change(index, **fields)))


def steps(change: Callable[[list[dict[str, Any]]], Any]) -> Break:
    def breaks(folder: Path) -> None:
        changed = good.steps()
        change(changed)
        (folder / "tasks" / "first.json").write_text(json.dumps(changed))

    return breaks


def lines(*values: Any) -> Break:
    """Replace tasks/more.jsonl; a text is a line as it is."""
    texts = [value if isinstance(value, str) else json.dumps(value) for value in values]

    def breaks(folder: Path) -> None:
        (folder / "tasks" / "more.jsonl").write_text("".join(f"{text}\n" for text in texts))
        (folder / "evals" / "some.toml").unlink()

    return breaks


def line(**fields: Any) -> dict[str, Any]:
    return {"name": "one", "steps": good.steps(), **fields}


def dockerfile(old: str, new: str) -> Break:
    return write("envs/shop/Dockerfile", good.DOCKERFILE.replace(old, new))


FIRST = "tasks/first.json"
MORE = "tasks/more.jsonl"
SHOP = "envs/shop/Dockerfile"
