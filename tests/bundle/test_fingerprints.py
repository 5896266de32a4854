"""What the fingerprint of a bundle and the digest of an env change with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from agent_env.bundle import load_bundle
from tests.bundle import good


def test_the_fingerprint_covers_what_is_read_and_nothing_else(folder: Path) -> None:
    first = load_bundle(folder).fingerprint
    assert len(first) == 64
    (folder / "README.md").write_text("Other words.")
    (folder / "build.py").write_text("x")
    (folder / "envs" / "shop" / "__pycache__").mkdir()
    (folder / "envs" / "shop" / "__pycache__" / "x.pyc").touch()
    assert load_bundle(folder).fingerprint == first
    seen = {first}
    for path, text in {
        "tasks/first.json": json.dumps(good.change(4, prompt="Other.")),
        "artifacts/stock/stock.json": "{}",
        "envs/shop/server.py": "x",
        "evals/some.toml": 'tasks = ["first"]',
        "aliases.toml": "",
    }.items():
        (folder / path).write_text(text)
        seen.add(load_bundle(folder).fingerprint)
    assert len(seen) == 6


def test_a_copy_of_a_bundle_has_its_fingerprint(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "shop-v1"
    shutil.copytree(folder, copy)
    assert load_bundle(copy).fingerprint == load_bundle(folder).fingerprint
    assert load_bundle(copy).envs["shop"].digest == load_bundle(folder).envs["shop"].digest


def test_an_envs_digest_changes_with_names_contents_and_executable_bits(folder: Path) -> None:
    def digest() -> str:
        return load_bundle(folder).envs["shop"].digest

    seen = [digest()]
    env = folder / "envs" / "shop"
    (env / ".dockerignore").write_text("x")
    seen.append(digest())
    (env / ".dockerignore").rename(env / ".other")
    seen.append(digest())
    (env / "server.py").chmod(0o755)
    seen.append(digest())
    assert len(set(seen)) == 4
