"""What all deploys of one env share: a fork server that has its libraries, and how envs are started and reached."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.process.forkserver import ForkServer, ForkServerEnded
from agent_env.sandbox.process.inside.settings import Settings
from agent_env.sandbox.process.instance import ProcessEnv
from agent_env.sandbox.process.rehearsal import exercise

__all__ = ["Prepared", "prepare_env"]

_NAMES_SECONDS = 20.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    server: ForkServer
    plain: bool
    """Each env is started by exec: its command is no Python script, or its libraries can't be forked."""
    tcp: bool
    """Its server binds a port; else it is passed its connections."""


async def prepare_env(
    env: EnvSpec,
    python: str,
    settings: Settings,
    rehearse: Callable[[ForkServer, bool], Awaitable[ProcessEnv]],
) -> Prepared:
    """Start its fork server and learn, by one throw-away env, how it is reached and which libraries it uses.

    rehearse: starts that env and returns it once it accepts connections. Raises DeployFailed.
    """
    plain = settings.script is None
    server = await ForkServer.start(python, settings)
    try:
        instance = await rehearse(server, plain)
        try:
            await exercise(instance.connect)
            modules = {} if plain else await _imported(instance)
            tcp = instance.tcp
        finally:
            await instance.kill()
        if plain:
            return Prepared(server, True, tcp)
        refused = await _preload(server, [name for name in modules if name not in ("", "__main__", "__mp_main__")])
        if refused is None:
            if settings.tier == "namespaces":
                await server.cache_bytecode([file for file in modules.values() if file.endswith(".py")])
            return Prepared(server, False, tcp)
        _log.warning(
            "env %r: %s by its libraries, so each of its envs is started afresh, not forked", env.name, refused
        )
        await server.close()
        server = await ForkServer.start(python, settings)
        return Prepared(server, True, tcp)
    except BaseException:
        await server.close()
        raise


async def _imported(instance: ProcessEnv) -> dict[str, str]:
    """None of its modules are known if its server doesn't answer: the env works all the same, and starts slower."""
    try:
        return await instance.imported(_NAMES_SECONDS)
    except (TimeoutError, OSError):
        return {}


async def _preload(server: ForkServer, names: list[str]) -> str | None:
    try:
        return await server.preload(names)
    except ForkServerEnded as error:
        return f"the fork server was ended ({error})"
