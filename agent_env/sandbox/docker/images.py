"""The image of an env: built from its Dockerfile and tagged by content, or one given by reference and pulled."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.docker.engine import Engine
from agent_env.sandbox.docker.errors import EngineError, says_disk_full
from agent_env.sandbox.interface import DeployFailed

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["IMAGE_LABEL", "Image", "Images", "image_tag"]

log = logging.getLogger(__name__)

IMAGE_LABEL = "agent-env.image"
"""On every image built here: `docker image prune --all --filter label=agent-env.image` removes those not in use."""

BUILD_TIMEOUT = 3600.0
"""Seconds that a build step may go on without printing anything."""

TAIL_LINES = 40


@dataclass(frozen=True, slots=True)
class Image:
    id: str
    reference: str
    user: str
    """The Dockerfile's USER, as `uid:gid`, names, or "" for root."""
    command: tuple[str, ...]
    """ENTRYPOINT + CMD."""
    environ: Mapping[str, str]
    ports: tuple[int, ...]
    """The TCP ports of EXPOSE."""
    healthcheck: bool = False
    """It has a HEALTHCHECK, which an engine would run in the container every few seconds."""


class Images:
    """Each env's image, made once: concurrent callers share the work, and one that is cancelled doesn't stop it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tasks: dict[tuple[str, str, str | None], asyncio.Task[Image]] = {}

    async def get(self, env: EnvSpec) -> Image:
        """Raises DeployFailed, with the end of the build's output."""
        key = (env.name, env.digest, env.image)
        task = self._tasks.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.create_task(self._make(env), name=f"image of {env.name}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._tasks[key] = task
        return await asyncio.shield(task)

    def forget(self, env: EnvSpec) -> None:
        """Somebody removed the image: the next `get` looks anew."""
        self._tasks.pop((env.name, env.digest, env.image), None)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _make(self, env: EnvSpec) -> Image:
        try:
            if env.image:
                return await self._engine.call(f"get image {env.image}", lambda api: _pulled(api, env))
            if env.dockerfile is None:
                raise DeployFailed(
                    f"env {env.name!r} can't run in Docker: it has no Dockerfile, and env.toml names no image"
                )
            return await self._engine.call(f"build the image of env {env.name!r}", lambda api: _built(api, env))
        except EngineError as error:
            raise DeployFailed(f"env {env.name!r}: {error}") from error


def image_tag(env: EnvSpec) -> str:
    """`agent-env/NAME:DIGEST`: the same content gives the same tag, on any host."""
    name = re.sub(r"[^a-z0-9]+", "-", env.name.lower()).strip("-") or "env"
    return f"agent-env/{name}:{env.digest[:16]}"


def _built(api: APIClient, env: EnvSpec) -> Image:
    tag = image_tag(env)
    try:
        return _described(api, tag)
    except Exception as error:
        if not _missing(error):
            raise
    assert env.dockerfile is not None
    log.info("building the image of env %r as %s", env.name, tag)
    began = time.monotonic()
    events: Iterator[dict[str, Any]] = api.build(
        path=str(env.folder),
        dockerfile=str(env.dockerfile),
        tag=tag,
        rm=True,
        forcerm=True,
        decode=True,
        timeout=int(BUILD_TIMEOUT),
        labels={IMAGE_LABEL: env.digest},
    )
    _follow(events, f"env {env.name!r}: its Dockerfile does not build")
    log.info("built %s in %.0f s", tag, time.monotonic() - began)
    return _described(api, tag)


def _pulled(api: APIClient, env: EnvSpec) -> Image:
    assert env.image
    try:
        return _described(api, env.image)
    except Exception as error:
        if not _missing(error):
            raise
    log.info("pulling %s for env %r", env.image, env.name)
    repository, tag = _repository_and_tag(env.image)
    try:
        events: Iterator[dict[str, Any]] = api.pull(repository, tag=tag, stream=True, decode=True)
        _follow(events, f"env {env.name!r}: image {env.image} can't be pulled")
    except Exception as error:
        if not _missing(error):
            raise
        raise DeployFailed(
            f"env {env.name!r}: image {env.image} is neither on this machine nor in its registry,"
            " or the registry wants a `docker login`"
        ) from error
    return _described(api, env.image)


def _repository_and_tag(reference: str) -> tuple[str, str | None]:
    """A tag is needed: without one, the engine pulls every tag there is."""
    if "@" in reference:
        repository, _, digest = reference.partition("@")
        return repository, digest
    head, colon, tag = reference.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (reference, "latest")


def _follow(events: Iterator[dict[str, Any]], failed: str) -> None:
    """Read the daemon's progress to its end. Raises DeployFailed with the last lines if it tells an error."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    for event in events:
        text = event.get("stream") or event.get("status") or ""
        tail.extend(line for line in str(text).splitlines() if line.strip() and "progress" not in event)
        if "error" in event:
            what = str(event["error"]).strip()
            cause = None
            if says_disk_full(what):
                what = f"the Docker host's disk is full: {what}"
                cause = EngineError(what, "disk_full")
            raise DeployFailed("\n".join([f"{failed}: {what}", *(f"  {line}" for line in tail)])) from cause


def _described(api: APIClient, reference: str) -> Image:
    found = api.inspect_image(reference)  # type: ignore[no-untyped-call]
    config = found.get("Config") or {}
    exposed = [port.partition("/") for port in (config.get("ExposedPorts") or {})]
    environ = dict(entry.split("=", 1) for entry in (config.get("Env") or []) if "=" in entry)
    return Image(
        id=found["Id"],
        reference=reference,
        user=config.get("User") or "",
        command=(*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())),
        environ=environ,
        healthcheck=bool(config.get("Healthcheck")),
        ports=tuple(sorted(int(port) for port, _, kind in exposed if kind in ("", "tcp") and port.isdecimal())),
    )


def _missing(error: Exception) -> bool:
    import docker.errors

    return isinstance(error, docker.errors.NotFound)
