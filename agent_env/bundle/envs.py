"""Env folders, read into how their servers start. Nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_env.bundle.artifacts import Artifacts
from agent_env.bundle.configs import check_config, read_config
from agent_env.bundle.dockerfile import Dockerfile, read_dockerfile
from agent_env.bundle.files import Unreadable, digest, names_in, read_small
from agent_env.bundle.layout import Entry, misspelled
from agent_env.bundle.model import EnvSpec
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.strict import Malformed, decode

__all__ = ["Envs", "read_envs"]

_KEYS = ("type", "id", "environment_name", "image", "env_provider_type")
_TYPE = "mcp_server"
_NO_PACKAGE = re.compile(r"#|agent[-_.]env(?![\w.-])", re.IGNORECASE)
"""Lines of a requirements file that ask for nothing: `agent_env.env` is on each env's path."""


@dataclass(slots=True)
class Envs:
    """The envs of a bundle."""

    specs: dict[str, EnvSpec] = field(default_factory=dict)
    """By folder name."""
    unplayable: dict[str, str] = field(default_factory=dict)
    """Why each of the others can't be deployed."""
    ids: dict[str, str] = field(default_factory=dict)
    """Id that an env.toml declares -> folder name."""


def read_envs(entries: Iterable[Entry], artifacts: Artifacts, problems: Problems) -> Envs:
    envs = Envs()
    for entry in entries:
        envs.unplayable[entry.name] = f"the env {entry.name!r} has problems"
        try:
            _read_env(entry, artifacts, envs, problems)
        except Unreadable as error:
            problems.add(entry.inside(error.path), "", str(error), error.fix)
    return envs


def _read_env(entry: Entry, artifacts: Artifacts, envs: Envs, problems: Problems) -> None:
    names = names_in(entry.path)
    wrong = [
        name
        for right in ("Dockerfile", "env.toml", "requirements.txt")
        if right not in names
        for name in misspelled(names, right, f"{entry.file}/", problems)
    ]
    toml = f"{entry.file}/env.toml"
    config = read_config(entry.path / "env.toml", toml, problems) if "env.toml" in names else {}
    if wrong or config is None or not check_config(config, toml, _KEYS, (_TYPE,), problems):
        return
    if "env.toml" not in names and "Dockerfile" not in names:
        problems.add(entry.file, "", "the env has neither Dockerfile nor env.toml", "add a Dockerfile")
        return
    if isinstance(config.get("id"), str):
        envs.ids[config["id"]] = entry.name
    if config.get("type", _TYPE) != _TYPE:
        envs.unplayable[entry.name] = f"the env {entry.name!r} is of type {config['type']!r}, not {_TYPE}"
        return
    built = _image(entry, names, config.get("image"), artifacts, problems)
    if built is None:
        return
    envs.specs[entry.name] = _spec(entry, *built, config, problems)
    del envs.unplayable[entry.name]


def _image(
    entry: Entry, names: list[str], image: object, artifacts: Artifacts, problems: Problems
) -> tuple[Path, str | None] | None:
    """The folder that the env is built from, and the image that is pulled instead; None when neither is said."""
    toml = f"{entry.file}/env.toml"
    if isinstance(image, str):
        if artifact := artifacts.images.get(image):
            return artifact.folder, None
        what = f"{image!r} is no docker_image artifact of the bundle"
        fix = closest(image, artifacts.images, "such artifacts")
        problems.add(toml, "image", what, f"{fix}; a registry's image is written {{ ref = ... }}")
        return None
    if image is not None:
        reference = image.get("ref") if isinstance(image, dict) and len(image) == 1 else None
        if not (isinstance(reference, str) and reference):
            problems.add(toml, "image", "it names no image", 'write image = { ref = "registry/name:tag" }')
            return None
        return entry.path, reference
    if "Dockerfile" not in names and "server.py" not in names:
        fix = "add a Dockerfile, or a server.py, or image = { ref = ... } to env.toml"
        problems.add(entry.file, "", "it doesn't say how the server starts", fix)
        return None
    return entry.path, None


def _spec(entry: Entry, folder: Path, image: str | None, config: Mapping[str, Any], problems: Problems) -> EnvSpec:
    said = Dockerfile(command=("python", "server.py"), workdir="/app")
    dockerfile = folder / "Dockerfile" if image is None and (folder / "Dockerfile").exists() else None
    if image is not None:
        said.needs_docker = f"env.toml: its image is {image}"
    elif dockerfile is not None:
        file = entry.inside(dockerfile) if folder == entry.path else f"artifacts/{folder.name}/Dockerfile"
        try:
            said = read_dockerfile(decode(read_small(dockerfile), bom=True), folder, file, problems)
        except Malformed as error:
            for flaw in error.flaws:
                problems.add(file, *flaw)
    requirements = folder / (said.requirements or "requirements.txt")
    return EnvSpec(
        name=entry.name,
        folder=folder.resolve(),
        digest=digest(folder),
        environment_name=config.get("environment_name") or _card_name(folder / "server.py"),
        command=said.command,
        environ=said.environ,
        workdir=said.workdir,
        writable=said.writable,
        python=said.python,
        requirements=requirements.resolve() if _lists_packages(requirements) else None,
        dockerfile=dockerfile.resolve() if dockerfile is not None else None,
        image=image,
        needs_docker=said.needs_docker,
    )


def _lists_packages(path: Path) -> bool:
    if not path.is_file():
        return False
    lines = read_small(path).decode("utf-8", "replace").splitlines()
    return any(line.strip() and not _NO_PACKAGE.match(line.strip()) for line in lines)


def _card_name(server: Path) -> str | None:
    """The `name` that server.py gives its `@environment_card(...)` as a plain text, if it does."""
    if not server.is_file():
        return None
    try:
        tree = ast.parse(read_small(server))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the server will say so itself, with its own traceback
    for node in ast.walk(tree):
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            if isinstance(decorator, ast.Call) and _last_name(decorator.func) == "environment_card":
                for keyword in decorator.keywords:
                    value = keyword.value
                    if keyword.arg == "name" and isinstance(value, ast.Constant) and isinstance(value.value, str):
                        return value.value
    return None


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
