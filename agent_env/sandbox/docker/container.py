"""One container, from its start to its removal."""

from __future__ import annotations

import asyncio
import os
import socket
from concurrent.futures import Future
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING, Any

from agent_env.sandbox.docker.engine import Engine
from agent_env.sandbox.docker.errors import EngineError, not_found
from agent_env.sandbox.docker.networks import Subnets, make_network
from agent_env.sandbox.docker.options import Options
from agent_env.sandbox.docker.output import Output
from agent_env.sandbox.docker.removal import Removals
from agent_env.sandbox.interface import Limits

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Container", "end_reason"]

CANCEL_WAIT = 5.0
"""Seconds that a cancelled or failed start waits for its own removal, before it leaves that to the background."""

REMOVE_WAIT = 15.0
"""Seconds after which `remove` leaves a removal that hangs to the background."""

EXIT_WAIT = 5.0
"""Seconds from the end of a container's output until the engine says how it exited. Measured: up to 50 ms, in which
it still says "running" and knows of no OOM."""


class Container:
    """Started; `remove` it in a `finally`. Make one with `start`."""

    def __init__(self, options: Options, engine: Engine, removals: Removals, connection: socket.socket) -> None:
        self.options = options
        self.output = Output(connection, options.limits.output_kib * 1024)
        self._engine = engine
        self._removals = removals
        self._removal: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, options: Options, engine: Engine, removals: Removals, subnets: Subnets) -> Container:
        """Create it, read its output, start it. Raises EngineError; whatever happens, nothing is left, or is being
        hunted down by its name: a call that was cut off may still make a container."""
        call = engine.submit(f"start {options.name}", lambda api: _start(api, options, subnets), start=True)
        try:
            connection = await asyncio.shield(asyncio.wrap_future(call))
        except EngineError as error:
            removal = removals.begin(options.name, network=options.network, hunt=error.ambiguous)
            await asyncio.wait([removal], timeout=CANCEL_WAIT)
            raise
        except asyncio.CancelledError:
            call.add_done_callback(_discard)
            removal = removals.begin(options.name, network=options.network, after=call)
            await asyncio.wait([removal], timeout=CANCEL_WAIT)
            raise
        return cls(options, engine, removals, connection)

    async def address(self) -> IPv4Interface | None:
        """Its address in its own network; None if it has ended. Raises EngineError."""
        found = await self._inspect()
        networks: dict[str, Any] = found["NetworkSettings"]["Networks"]
        own = networks[self.options.network or ""]
        return IPv4Interface(f"{own['IPAddress']}/{own['IPPrefixLen']}") if own["IPAddress"] else None

    async def exited(self) -> str:
        """Return when it has ended, with why."""
        await asyncio.wait([self.output.ended])
        if self._removal is not None:
            return "it was removed"
        for _ in range(int(EXIT_WAIT / 0.05)):
            try:
                state: dict[str, Any] = (await self._inspect())["State"]
            except EngineError as error:
                return "it was removed" if not_found(error) else f"its end can't be told: {error}"
            if state["Status"] in ("exited", "dead"):
                return end_reason(state, self.options.limits, self.output.text)
            await asyncio.sleep(0.05)
        return "the Docker daemon let go of it (was it restarted?)"

    async def remove(self) -> None:
        """SIGKILL and remove, with its network and volumes. Idempotent, never raises, bounded in time."""
        if self._removal is None:
            self._removal = self._removals.begin(self.options.name, network=self.options.network)
        try:
            await asyncio.wait([self._removal], timeout=REMOVE_WAIT)
        finally:
            self.output.close()

    async def _inspect(self) -> dict[str, Any]:
        name = self.options.name
        return await self._engine.call(f"look at {name}", lambda api: dict(api.inspect_container(name)))


def end_reason(state: dict[str, Any], limits: Limits, output: str) -> str:
    """The engine's `State` of an exited container, in words."""
    code = int(state.get("ExitCode") or 0)
    if state.get("OOMKilled"):
        return f"killed: out of memory ({limits.memory_mib} MiB)"
    if state.get("Error"):
        return str(state["Error"])
    reason = f"killed by signal {code - 128}" if 128 < code < 160 else f"exit status {code}"
    # The kernel tells a process that it may not have another one only in these words.
    if "can't start new thread" in output or "Resource temporarily unavailable" in output:
        reason += f" (the limit is {limits.processes} processes)"
    return reason


def _discard(call: Future[socket.socket]) -> None:
    """A start that nobody waits for any more: close what it brings."""
    if not call.cancelled() and call.exception() is None:
        call.result().close()


def _start(api: APIClient, options: Options, subnets: Subnets) -> socket.socket:
    """Blocking: create, attach, start. Returns the connection that its output comes on."""
    from docker.types import Healthcheck, LogConfig, Mount, Ulimit

    if options.network is not None:
        make_network(api, subnets, options.network, options.labels)
    limits = options.limits
    host = api.create_host_config(
        network_mode=options.network or "none",
        read_only=True,
        tmpfs=options.tmpfs(),
        # Not binds: for those the engine makes a folder that it can't find.
        mounts=[Mount(target, str(source), type="bind", read_only=True) for target, source in options.mounts().items()],
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        ipc_mode="private",
        init=True,
        mem_limit=f"{limits.memory_mib}m",
        memswap_limit=f"{limits.memory_mib}m",
        pids_limit=limits.processes + options.extra_processes,
        nano_cpus=int(options.cpus * 1e9),
        ulimits=[Ulimit(name=name, soft=soft, hard=hard) for name, (soft, hard) in options.ulimits().items()],
        log_config=LogConfig(type="none"),
    )
    api.create_container(
        options.image.id,
        name=options.name,
        entrypoint=list(options.entrypoint) if options.entrypoint else None,
        user=options.user,
        environment=options.environment(),
        labels=dict(options.labels),
        host_config=host,
        healthcheck=Healthcheck(test=["NONE"]) if options.image.healthcheck else None,
        detach=True,
        # Not read from, but a server that reads its standard input finds its end at once.
        stdin_open=False,
        use_config_proxy=False,
        # Without it the engine runs itself once more, beside every container, to register the namespace of its network.
        network_disabled=options.network is None,
    )
    connection = _attach(api, options.name)
    try:
        api.start(options.name)
    except BaseException:
        connection.close()
        raise
    return connection


def _attach(api: APIClient, name: str) -> socket.socket:
    """A descriptor of our own for the stream: the SDK's objects close theirs when they are collected."""
    stream = api.attach_socket(name, params={"stdout": 1, "stderr": 1, "stream": 1})
    try:
        return socket.socket(fileno=os.dup(stream.fileno()))
    finally:
        stream.close()
