"""Artifact folders, read into what they are: a file, a set of files, an env's seed data or an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_env.bundle.configs import check_config, read_config
from agent_env.bundle.files import Unreadable, names_in, walk
from agent_env.bundle.layout import Entry, misspelled
from agent_env.bundle.model import Artifact
from agent_env.bundle.problems import Problems, closest

__all__ = ["Artifacts", "read_artifacts"]

_KEYS = ("type", "id", "description", "environment_name", "file")
_TYPES = ("file", "file_artifact_universe", "environment", "docker_image", "skill")


@dataclass(slots=True)
class Artifacts:
    found: dict[str, Artifact | None] = field(default_factory=dict)
    """By folder name; None: it has problems, which are noted."""
    ids: dict[str, str] = field(default_factory=dict)
    """Id that an artifact.toml declares -> folder name."""

    @property
    def images(self) -> dict[str, Artifact]:
        return {name: each for name, each in self.found.items() if each is not None and each.type == "docker_image"}


def read_artifacts(entries: Iterable[Entry], problems: Problems) -> Artifacts:
    artifacts = Artifacts()
    for entry in entries:
        try:
            artifacts.found[entry.name] = _read_artifact(entry, artifacts, problems)
        except Unreadable as error:
            artifacts.found[entry.name] = None
            problems.add(entry.inside(error.path), "", str(error), error.fix)
    return artifacts


def _read_artifact(entry: Entry, artifacts: Artifacts, problems: Problems) -> Artifact | None:
    toml = f"{entry.file}/artifact.toml"
    names = names_in(entry.path)
    if "artifact.toml" not in names and misspelled(names, "artifact.toml", f"{entry.file}/", problems):
        return None
    config = read_config(entry.path / "artifact.toml", toml, problems) if "artifact.toml" in names else {}
    if config is None or not check_config(config, toml, _KEYS, _TYPES, problems):
        return None
    if isinstance(config.get("id"), str):
        artifacts.ids[config["id"]] = entry.name
    files = tuple(path for name, path in walk(entry.path) if name != "artifact.toml")
    if not files:
        problems.add(entry.file, "", "the artifact has no file", "put its files here")
        return None
    kind = config.get("type") or _kind(entry, names, files, problems)
    if kind is None:
        return None
    if kind == "skill" or (kind != "docker_image" and "SKILL.md" in names):
        problems.add(entry.file, "", "it looks like a skill", f"move it to skills/{entry.name}")
        return None
    if kind == "file" and len(files) != 1:
        problems.add(toml, "type", f"a file artifact has one file, and here are {len(files)}", "leave one file here")
        return None
    if kind == "environment":
        seed = _seed(entry, config, files, toml, problems)
        if seed is None:
            return None
        files = (seed,)
    return Artifact(entry.name, kind, entry.path.resolve(), files, config.get("environment_name"))


def _kind(entry: Entry, names: list[str], files: tuple[Path, ...], problems: Problems) -> str | None:
    """The type that the files say when artifact.toml doesn't."""
    if "Dockerfile" in names:
        return "docker_image"
    if misspelled(names, "Dockerfile", f"{entry.file}/", problems):
        return None
    return "file" if len(files) == 1 else "file_artifact_universe"


def _seed(
    entry: Entry, config: Mapping[str, Any], files: tuple[Path, ...], toml: str, problems: Problems
) -> Path | None:
    """The one file of data that an environment artifact seeds its env with."""
    if config.get("environment_name") is None:
        problems.add(toml, "environment_name", "it is missing", "name the env that the data is for, as its card does")
        return None
    by_name = {entry.inside(path).removeprefix(f"{entry.file}/"): path for path in files}
    wanted = config.get("file") or (next(iter(by_name)) if len(by_name) == 1 else None)
    if wanted is None:
        problems.add(toml, "file", f"it is missing, and here are {len(files)} files", "name the one that is the data")
    elif wanted not in by_name:
        problems.add(toml, "file", f"there is no file {wanted!r}", closest(wanted, by_name, "files"))
    return by_name.get(wanted) if wanted is not None else None
