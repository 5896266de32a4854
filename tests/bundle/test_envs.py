"""What an env that has no plain Dockerfile is read as."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_env.bundle import load_bundle


def test_env_toml_alone_starts_server_py(folder: Path) -> None:
    (folder / "envs" / "shop" / "Dockerfile").unlink()
    (folder / "envs" / "shop" / "env.toml").write_text("environment_name = 'corner-shop'\n")
    env = load_bundle(folder).envs["shop"]
    assert (env.command, env.workdir, env.environment_name) == (("python", "server.py"), "/app", "corner-shop")
    assert (env.dockerfile, env.needs_docker) == (None, None)


def test_an_image_by_reference_needs_docker(folder: Path) -> None:
    (folder / "envs" / "shop" / "env.toml").write_text('image = { ref = "registry.example/shop:1" }\n')
    env = load_bundle(folder).envs["shop"]
    assert (env.image, env.dockerfile) == ("registry.example/shop:1", None)
    assert env.needs_docker == "env.toml: its image is registry.example/shop:1"


def test_an_image_artifact_is_what_the_env_is_built_from(folder: Path) -> None:
    (folder / "envs" / "shop").rename(folder / "artifacts" / "shop-image")
    (folder / "envs" / "shop").mkdir()
    (folder / "envs" / "shop" / "env.toml").write_text('image = "shop-image"\n')
    env = load_bundle(folder).envs["shop"]
    assert env.folder == folder.resolve() / "artifacts" / "shop-image"
    assert (env.name, env.command) == ("shop", ("python", "server.py"))


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "agent-env>=0.1\n"])
def test_a_requirements_file_that_lists_nothing_is_none(folder: Path, text: str) -> None:
    (folder / "envs" / "shop" / "requirements.txt").write_text(text)
    assert load_bundle(folder).envs["shop"].requirements is None
