"""A sandbox without an image, as an env of ours: this is the host's side, `server.py` beside it is the env.

A task's `deploy_sandbox` steps, and an agent that works in a sandbox of its own, are each one such env. The paths that
the task writes (`/app/...`) are real there: a process sandbox links their topmost folders into its private /tmp.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agent_env.bundle.criteria import SandboxCriterion
from agent_env.bundle.model import Artifact, EnvSpec, Task
from agent_env.bundle.steps import LoadArtifact, VerifySandbox
from agent_env.episode.env_client import EnvClient, EnvRefused

__all__ = ["HOME", "check", "put_files", "set_up", "workspace_spec", "writable_folders"]

HOME = "/app"
"""Where the agent's shell starts, and what relative paths are relative to."""
URI = "urn:agent-env:workspace/v1"
PIECE = 4 * 1024 * 1024
"""Bytes of a file in one request."""

FOLDER = Path(__file__).parent


def workspace_spec(name: str, writable: Iterable[str]) -> EnvSpec:
    """The env of the sandbox `name`, in which these folders can be written."""
    folders = tuple(writable)
    return EnvSpec(
        name=name,
        folder=FOLDER,
        digest=hashlib.sha256(f"{_server_digest()} {' '.join(folders)}".encode()).hexdigest(),
        environment_name="workspace",
        workdir="/workspace-server",
        dockerfile=FOLDER / "Dockerfile",
        writable=folders,
    )


def writable_folders(task: Task) -> tuple[str, ...]:
    """The topmost folders of all the paths that a task's steps say, /tmp aside."""
    paths = [HOME]
    for step in task.steps:
        if isinstance(step, LoadArtifact) and step.destination_path:
            paths.append(absolute(step.destination_path))
        if isinstance(step, VerifySandbox):
            paths.append(absolute(step.base_dir))
    topmost = {"/" + path.split("/")[1] for path in paths}
    return tuple(sorted(topmost - {"/", "/tmp"}))


def absolute(path: str) -> str:
    return path if path.startswith("/") else f"{HOME}/{path}"


async def set_up(client: EnvClient, folders: Iterable[str], environ: Mapping[str, str]) -> None:
    """Call it first. environ: for every command."""
    await _operate(client, "set_up", {"folders": list(folders), "environ": dict(environ)})


async def put_files(client: EnvClient, artifact: Artifact, destination: str) -> None:
    """Copy an artifact's files into a folder of the sandbox."""
    for file in artifact.files:
        path = f"{absolute(destination).rstrip('/')}/{file.relative_to(artifact.folder).as_posix()}"
        executable = bool(file.stat().st_mode & 0o111)
        for number, piece in enumerate(_pieces(file)):
            content = base64.b64encode(piece).decode("ascii")
            args = {"path": path, "content": content, "append": number > 0, "executable": executable}
            await _operate(client, "put", args)


async def check(client: EnvClient, criterion: SandboxCriterion, base_dir: str, seconds: float) -> dict[str, Any]:
    """A criterion's row. seconds: after which a command has failed."""
    args = {"criterion": criterion.model_dump(mode="json"), "base_dir": absolute(base_dir), "seconds": seconds}
    found = await _operate(client, "check", args)
    given = {key: value for key, value in criterion.model_dump(mode="json").items() if key in ("criterion", "weight")}
    return {**given, **found}


async def _operate(client: EnvClient, method: str, args: Mapping[str, Any]) -> Any:
    extension = await client.extension(URI)
    if extension is None:
        raise EnvRefused("it is no workspace")
    return await client.invoke(extension, args, method)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        yield opened.read(PIECE)  # an empty file is one empty piece
        while piece := opened.read(PIECE):
            yield piece


@cache
def _server_digest() -> str:
    total = hashlib.sha256()
    for file in sorted(FOLDER.glob("*.py")):
        total.update(file.read_bytes())
    return total.hexdigest()
