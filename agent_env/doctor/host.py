"""Checks of this machine: packages, open files, proxies; and, where envs are to run, isolation, disks and Docker."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from agent_env import __version__
from agent_env.doctor.finding import Finding, fail, ok, warn

__all__ = ["env_host", "trainer_host"]

_TRAINER = ("httpcore", "httpx", "pydantic", "websockets")
_SERVER = ("fastapi", "uvicorn", "h11", "docker", "huggingface_hub", "prometheus_client", "rich")
_PER_ROLLOUT = 2
"""Open files of a rollout: its session with the env server, and its chat."""
_FULL, _LITTLE = 16 << 20, 1 << 30
"""Bytes left on a disk: too few for envs to be deployed, and few enough to say so."""
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def trainer_host(rollouts: int, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """What a process that plays `rollouts` at once needs."""
    if platform.system() != "Linux":
        yield fail(f"this is {platform.system()}", "agent-env is for Linux")
    yield from _packages(_TRAINER, "pip install agent-env")
    needed, (soft, hard) = 64 + _PER_ROLLOUT * rollouts, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        yield fail(
            f"{rollouts} rollouts need about {needed} open files; at most {hard} are allowed", f"ulimit -n {needed}"
        )
    elif soft != resource.RLIM_INFINITY and needed > soft:
        yield warn(f"{rollouts} rollouts need about {needed} open files; {soft} are allowed", f"ulimit -n {needed}")
    else:
        yield ok(f"open files suffice for {rollouts} rollouts")
    proxies = [name for name in environ if name.lower() in _PROXIES and environ[name]]
    bypass = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if proxies and not {"127.0.0.1", "*"} & {part.strip() for part in bypass.split(",")}:
        yield warn(
            f"{', '.join(proxies)} is set, and no_proxy does not name 127.0.0.1",
            "agent-env connects straight, but the trainer's other parts may send loopback to the proxy: "
            "export no_proxy=127.0.0.1,localhost",
        )


async def env_host() -> AsyncIterator[Finding]:
    """What serving bundles needs: the server's packages, a sandbox tier, Docker if there is one."""
    missing = [finding for finding in _packages(_SERVER, "pip install 'agent-env[openenv]'") if finding.fix]
    if missing:
        for finding in missing:
            yield finding
        return
    yield ok("the server's packages are installed")
    from agent_env.sandbox.process.tiers import probe_tier

    tier, refused = await probe_tier()
    why = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    if tier is None:
        yield fail("envs can't be isolated here", why)
    elif tier.name == "namespaces":
        yield ok("sandbox tier namespaces: " + "; ".join(tier.gives))
    else:
        yield warn(f"sandbox tier {tier.name} ({why})", "it does not give " + "; ".join(tier.lacks))
    from agent_env.sandbox.process.venvs import cache_folder

    yield disk("temporary files", Path(tempfile.gettempdir()), "set TMPDIR to another disk")
    yield disk("virtual environments of envs", cache_folder(), "set AGENT_ENV_CACHE to another disk")
    async for finding in _docker():
        yield finding


def disk(what: str, folder: Path, otherwise: str) -> Finding:
    """Whether there is room for `what` in a folder, which need not be there yet."""
    while not folder.exists():
        folder = folder.parent
    left = shutil.disk_usage(folder).free
    told = f"{left / (1 << 30):.1f} GiB are left for {what} in {folder}"
    if left >= _LITTLE:
        return ok(told)
    return (warn if left >= _FULL else fail)(told, f"make room, or {otherwise}")


async def _docker() -> AsyncIterator[Finding]:
    from agent_env.sandbox.docker.engine import Engine
    from agent_env.sandbox.interface import SandboxError

    engine = Engine(timeout=5.0)
    try:
        await engine.connect()
        networks = await engine.call("list networks", lambda api: len(api.networks()))
    except SandboxError as error:
        yield warn(f"no Docker engine ({error})", "only envs whose Dockerfile needs one can't run")
        return
    finally:
        engine.close()
    yield ok(f"Docker answers; {networks} networks exist (envs here need none, or bring their own subnet)")
    for finding in _docker_disk(str(engine.info.get("DockerRootDir") or "")):
        yield finding


def _docker_disk(folder: str) -> Iterator[Finding]:
    if os.path.isdir(folder):  # else it can't be seen from here
        yield disk("Docker's images and containers", Path(folder), "prune what is not used: docker system prune")


def _packages(names: tuple[str, ...], install: str) -> Iterator[Finding]:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        yield fail(f"missing packages: {', '.join(missing)}", install)
    else:
        versions = ", ".join(f"{name} {importlib.metadata.version(name.replace('_', '-'))}" for name in names)
        yield ok(f"agent-env {__version__}, Python {platform.python_version()}, {versions}")
