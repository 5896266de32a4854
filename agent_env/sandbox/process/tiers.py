"""Which isolation this machine gives the process sandbox, found by trying, and what each tier does and doesn't do."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

from agent_env.sandbox.interface import (
    DeployFailed,
    EnvLost,
    Limits,
    SandboxError,
    SandboxUnavailable,
    Tier,
    Verification,
)
from agent_env.sandbox.process.cells import Cells
from agent_env.sandbox.process.inside.landlock import abi
from agent_env.sandbox.process.layout import Interpreter
from agent_env.sandbox.process.verifiers import Verifiers
from agent_env.sandbox.process.waiting import finish

__all__ = ["NAMES", "choose_tier", "describe", "probe_tier"]

NAMES = ("namespaces", "landlock", "unconfined")
"""From the strongest to none."""

_PROBE_SECONDS = 20.0
_LEAST_LANDLOCK = 4
"""The first that has TCP: without it a verifier could connect anywhere."""
_NOTHING = Verification(code="def verify(mcp_url): return []", filename="probe")

_log = logging.getLogger(__name__)


def describe(name: str, *, cgroups: bool = False) -> Tier:
    """cgroups: whether limits hold for all of an env's processes together."""
    together = "memory, processes and CPU are limited for each env as a whole (cgroups)"
    apart = "memory is limited for each process of an env, not for the env as a whole: cgroups can't be written here"
    if name == "namespaces":
        return Tier(
            name,
            (
                "no network: a loopback of its own",
                "files: a read-only root of listed paths, a private /tmp of limited size",
                "processes, IPC and host name of its own; all of them end with it",
                "no capabilities, no new privileges, an unprivileged user, a system-call filter",
                *((together,) if cgroups else ()),
            ),
            (
                "a kernel of its own: a hole in this kernel's system calls is a hole in the wall",
                *(() if cgroups else (apart,)),
            ),
        )
    if name == "landlock":
        return Tier(
            name,
            (
                "files: only listed paths can be read, only a folder of its own can be written",
                "no network: no socket can be made",
                "one process an env, which can signal no other",
                "no capabilities, no new privileges, a system-call filter",
            ),
            (
                "namespaces: an env shares this process's view of processes and users, and can't start processes",
                "changes of a file's mode, owner or times, also of its own files",
                "servers that bind a TCP port: only envs written with agent_env.env run",
                "a hard limit of its /tmp: it is measured twice a second, and an env over the limit is ended",
                apart,
            ),
        )
    return Tier(
        name,
        ("limits of memory, CPU time and open files for each process",),
        (
            "everything else: an env can read, write, connect and signal whatever this process can",
            "an end of what an env started and moved out of its process group",
        ),
    )


async def choose_tier(asked: str | None) -> str:
    """The tier's name, tried. Raises SandboxUnavailable saying what to do."""
    if asked == "unconfined":
        _log.warning("envs and verifiers run UNCONFINED: they can do whatever this process can")
        return asked
    if asked not in (None, "auto", *NAMES):
        raise SandboxUnavailable(f"there is no tier {asked!r}: choose one of auto, {', '.join(NAMES)}")
    wanted = ("namespaces", "landlock") if asked in (None, "auto") else (str(asked),)
    found, refused = await probe_tier(wanted)
    if found is not None:
        for name, why in refused.items():
            _log.warning("the %s tier can't be used (%s); using %s", name, why, found.name)
        return found.name
    reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
    raise SandboxUnavailable(
        f"envs can't be isolated on this machine ({reasons}). {_advice()} Or use Docker for every env "
        "(sandbox='docker') or, only for bundles that you trust as your own code, sandbox='unconfined'"
    )


async def probe_tier(names: tuple[str, ...] = ("namespaces", "landlock")) -> tuple[Tier | None, dict[str, str]]:
    """The first of these tiers that works here, or None; and why each one before it doesn't. Takes 0.2 s a tier.

    Each is tried whole: a fork server is started, and a verifier runs in it.
    """
    refused: dict[str, str] = {}
    for name in names:
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                await _try(name)
        except TimeoutError:
            refused[name] = f"nothing came back within {_PROBE_SECONDS:g} s"
        except (SandboxError, OSError) as error:
            refused[name] = str(error).strip().rpartition("\n")[2]
        else:
            return describe(name), refused
    return None, refused


async def _try(name: str) -> None:
    if name == "landlock" and (version := abi()) < _LEAST_LANDLOCK:
        raise DeployFailed(f"the kernel's Landlock is version {version}, and {_LEAST_LANDLOCK} (Linux 6.7) is needed")
    cells = Cells(name, cgroups=False)
    verifiers = Verifiers(cells, preloaded=())
    try:
        await verifiers.run(Interpreter.own(), _NOTHING, Limits(), _no_env)
    finally:
        await finish(verifiers.close())
        cells.close()


async def _no_env() -> socket.socket:
    raise EnvLost("there is no env")


def _advice() -> str:
    restricted = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    if restricted.exists() and restricted.read_text().strip() == "1":
        return f"AppArmor restricts user namespaces: run as root, or write 0 to {restricted}."
    if Path("/.dockerenv").exists() or os.environ.get("KUBERNETES_SERVICE_HOST"):
        return (
            "In a container: start it with `--security-opt seccomp=unconfined --security-opt systempaths=unconfined` "
            "and an ordinary user, or on a kernel with Landlock 4 (Linux 6.7)."
        )
    return (
        "User namespaces must be allowed (sysctl user.max_user_namespaces), or the kernel have Landlock 4 (Linux 6.7)."
    )
