"""Starting an env's container, and finding out how its server is reached."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.docker.channel import Channel, DialledChannel, PortChannel
from agent_env.sandbox.docker.container import Container
from agent_env.sandbox.docker.host import DockerHost
from agent_env.sandbox.docker.images import Image
from agent_env.sandbox.docker.options import SDK_FOLDER, SOCKET_FOLDER
from agent_env.sandbox.interface import DeployFailed, Limits, SandboxError

__all__ = ["Reach", "launch"]

log = logging.getLogger(__name__)

Reach = Literal["control", "relay", "port"]
"""`control`: the server dials the host itself, as `agent_env.env` does. `relay`: it binds a port, and our script beside
it, under the image's Python, dials for it. Neither has a network. `port`: it binds a port in an image without Python,
so it has a network of its own, and the host connects to it."""

PORT = 18765
HOST_SOCKET = f"{SOCKET_FOLDER}/host.sock"
NO_PYTHON = ("exec python3 failed", "failed to exec pid1")
"""How the init processes of Docker (tini) and Podman (catatonit) say that there is no python3."""
RELAY_PROCESSES = 64
"""Two threads for each connection."""


class _NoPython(Exception):
    pass


async def launch(
    host: DockerHost, env: EnvSpec, image: Image, limits: Limits, reach: Reach | None, episode_id: str
) -> tuple[Container, Channel, Reach]:
    """Start a container and return once its server accepts connections. `reach` is what it was found to be before.

    An env that has not run before is given both: the socket to dial, and our script beside it; what answers first is
    what it is. Raises DeployFailed if it ends before, EngineError; nothing of it is left then.
    """
    if reach != "port":
        try:
            return await _launch_dialled(host, env, image, limits, reach, episode_id)
        except _NoPython:
            log.info("env %r: image %s has no python3, so its containers get a network", env.name, image.reference)
    return await _launch_with_port(host, env, image, limits, episode_id)


async def _launch_dialled(
    host: DockerHost, env: EnvSpec, image: Image, limits: Limits, reach: Reach | None, episode_id: str
) -> tuple[Container, Channel, Reach]:
    environ = {"MCP_HOST": "127.0.0.1", "MCP_PORT": str(PORT), **_named(env)}
    if reach != "relay":
        environ["AGENTENV_DIAL"] = HOST_SOCKET
    entrypoint = None
    if reach != "control":
        ports = ",".join(map(str, dict.fromkeys((PORT, *image.ports))))
        script = ["python3", "-I", "-S", f"{SDK_FOLDER}/inside.py", "relay", HOST_SOCKET, ports]
        entrypoint = [*script, *(image.command or env.command)]
    name = host.name(env)
    channel = DialledChannel(host.folder(name))
    options = host.options(
        name,
        env,
        image,
        limits,
        episode_id=episode_id,
        environ=environ,
        entrypoint=entrypoint,
        extra_processes=RELAY_PROCESSES if entrypoint else 0,
    )
    container: Container | None = None
    try:
        container = await host.start(options)
        found = await _until_up(env, container, channel)
    except BaseException:
        try:
            if container is not None:
                await container.remove()
        finally:
            channel.close()
        raise
    return container, channel, "control" if found == "control" else "relay"


async def _launch_with_port(
    host: DockerHost, env: EnvSpec, image: Image, limits: Limits, episode_id: str
) -> tuple[Container, Channel, Reach]:
    name = host.name(env)
    folder = host.folder(name)
    folder.mkdir(mode=0o711)  # empty: nothing is dialled
    environ = {"MCP_HOST": "0.0.0.0", "MCP_PORT": str(PORT), **_named(env)}
    options = host.options(name, env, image, limits, episode_id=episode_id, environ=environ, network=True)
    container: Container | None = None
    try:
        container = await host.start(options)
        address = await container.address()
        if address is None:
            raise await _ended(env, container)
        channel = PortChannel(address, image.ports[0] if len(image.ports) == 1 else PORT)
        await _until_up(env, container, channel)
    except BaseException:
        if container is not None:
            await container.remove()
        raise
    finally:
        folder.rmdir()
    return container, channel, "port"


async def _until_up(env: EnvSpec, container: Container, channel: Channel) -> str:
    up = asyncio.create_task(channel.up())
    ended = asyncio.create_task(container.exited())
    try:
        await asyncio.wait([up, ended], return_when=asyncio.FIRST_COMPLETED)
        if up.done():
            return up.result()
    except SandboxError as error:
        raise DeployFailed(f"env {env.name!r} can't be reached: {error}") from error
    finally:
        up.cancel()
        ended.cancel()
    raise await _ended(env, container)


async def _ended(env: EnvSpec, container: Container) -> Exception:
    why = await container.exited()
    output = container.output.text.strip()
    if container.options.entrypoint and any(words in output for words in NO_PYTHON):
        return _NoPython()
    printed = f"; it printed:\n{output}" if output else ""
    return DeployFailed(f"env {env.name!r} ended while it started: {why}{printed}")


def _named(env: EnvSpec) -> dict[str, str]:
    return {"ENVIRONMENT_NAME": env.environment_name} if env.environment_name else {}
