"""Which sandbox a server's envs run in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import Limits, Sandbox, SandboxUnavailable
from agent_env.sandbox.pool import WarmPool
from agent_env.sandbox.router import Router, why_docker

__all__ = ["KINDS", "make_sandbox"]

KINDS = ("auto", "process", "landlock", "unconfined", "docker")
"""`auto`: the process sandbox for every env that it can run, Docker for the others. `process`: the strongest tier that
this machine has, never none. `landlock` and `unconfined` ask for that tier by name."""

DOCKER_WARM = 4


def make_sandbox(
    kind: str | Sandbox | None = None,
    *,
    envs: Iterable[EnvSpec],
    limits: Limits | None = None,
    per_env_limits: Mapping[str, Limits] | None = None,
    warm: int | Mapping[str, int] | None = None,
    max_live: int | None = None,
) -> Sandbox:
    """The sandbox for these envs, not started yet. A Sandbox given as `kind` is returned as it is.

    `per_env_limits` and a mapping `warm` go by env name. `warm` is how many fresh envs of each kind are kept ready;
    None: min(4, max_live) for envs in Docker, where a start takes 0.1 s and more, and none in the process sandbox,
    whose fork server starts one in milliseconds. `max_live` bounds what the host holds, warm ones included.

    Raises ValueError for an unknown kind, SandboxUnavailable if an env needs Docker and `kind` rules it out.
    """
    if isinstance(kind, Sandbox):
        return kind
    kind = kind or "auto"
    if kind not in KINDS:
        raise ValueError(f"sandbox {kind!r} is not known: choose one of {', '.join(KINDS)}, or give a Sandbox")
    envs = list({(env.name, env.digest): env for env in envs}.values())
    limits = limits or Limits()
    per_env = dict(per_env_limits or {})
    needing = [env for env in envs if why_docker(env)]
    if kind == "docker":
        needing = envs
        inner: Sandbox = _docker(limits, per_env)
    elif kind == "auto":
        if not needing:
            inner = _process("process", limits, per_env)
        else:
            process = _process("process", limits, per_env) if len(needing) < len(envs) else None
            inner = Router(process, _docker(limits, per_env), envs)
    elif needing:
        told = "; ".join(f"env {env.name!r} needs Docker: {why_docker(env)}" for env in needing)
        raise SandboxUnavailable(f"{told}; so sandbox={kind!r} can't run this bundle: choose 'auto' or 'docker'")
    else:
        inner = _process(kind, limits, per_env)
    counts = _warm_counts(warm, envs, needing, max_live)
    return WarmPool(inner, warm=counts, max_live=max_live) if any(counts.values()) else inner


def _warm_counts(
    warm: int | Mapping[str, int] | None, envs: list[EnvSpec], in_docker: list[EnvSpec], max_live: int | None
) -> dict[str, int]:
    if isinstance(warm, int):
        return {env.name: warm for env in envs}
    default = DOCKER_WARM if max_live is None else min(DOCKER_WARM, max_live)
    counts = {env.name: default for env in in_docker}
    return {**counts, **(warm or {})}


# Loaded when chosen: a server without Docker envs never imports the Docker SDK, and the other way round.


def _process(kind: str, limits: Limits, per_env: Mapping[str, Limits]) -> Sandbox:
    from agent_env.sandbox.process import ProcessSandbox

    return ProcessSandbox(limits, per_env=per_env, tier=None if kind == "process" else kind)


def _docker(limits: Limits, per_env: Mapping[str, Limits]) -> Sandbox:
    from agent_env.sandbox.docker import DockerSandbox

    return DockerSandbox(limits, per_env=per_env)
