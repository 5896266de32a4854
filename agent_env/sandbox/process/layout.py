"""What a sandbox shows of this machine: which paths, read-only, at which places, and which environment variables."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.process.inside.settings import Settings

__all__ = ["PORT", "SDK", "Interpreter", "env_settings", "verifier_settings"]

PORT = 18765
"""What a server that binds a port binds, on the loopback of its own network namespace: MCP_PORT."""

SDK = "/run/agent-env/lib"
"""Where `agent_env.env`, and nothing else of agent_env, can be imported from in a sandbox."""

_PACKAGE = Path(__file__).resolve().parents[2]
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/lib32", "/sbin", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives")
_COMMON = {
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MCP_HOST": "127.0.0.1",
    "MCP_PORT": str(PORT),
    # Else OpenBLAS starts threads when it is imported, and a fork server can't have any.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # FastMCP asks PyPI for updates at its start, and there is no network.
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "FASTMCP_SHOW_SERVER_BANNER": "false",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python: this process's own, or a virtual environment's. A venv is known by the path of its `python` link."""

    executable: str
    prefix: str
    base_prefix: str

    @classmethod
    def own(cls) -> Interpreter:
        return cls(sys.executable, sys.prefix, sys.base_prefix)

    @classmethod
    def of_venv(cls, folder: Path) -> Interpreter:
        return cls(str(folder / "bin" / "python"), str(folder), sys.base_prefix)


@dataclass(frozen=True, slots=True)
class _Places:
    binds: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]

    def holds(self, path: str) -> bool:
        """Is something bound at path, below it, or above it?"""
        return any(_within(path, target) or _within(target, path) for _, target in self.binds)


def env_settings(env: EnvSpec, interpreter: Interpreter, tier: str, sdk: str) -> Settings:
    """How an env runs: its folder at its real path and at the Dockerfile's WORKDIR, where its server starts.

    sdk: the folder that `agent_env.env` is imported from.
    """
    folder = str(env.folder)
    places = _places([folder, *_seen(interpreter)], tier, sdk)
    binds, cwd = places.binds, folder
    if tier == "namespaces" and _is_free(env.workdir, places):
        binds, cwd = (*binds, (folder, os.path.normpath(env.workdir))), os.path.normpath(env.workdir)
    writable = [path for path in env.writable if tier == "namespaces" and _is_free(path, places) and path != cwd]
    links = (*places.links, *((path, f"/tmp/.writable{path}") for path in writable))
    command = _command(env, interpreter)
    script, argv = _script(command, cwd)
    path = env.environ.get("PYTHONPATH", "").split(":")
    python_path = [os.path.join(cwd, part) for part in path if part]
    environ = {**_common(interpreter), **env.environ, **{name: _COMMON[name] for name in ("MCP_HOST", "MCP_PORT")}}
    environ["ENVIRONMENT_NAME"] = env.environment_name or env.environ.get("ENVIRONMENT_NAME", "")
    if not environ["ENVIRONMENT_NAME"]:
        del environ["ENVIRONMENT_NAME"]
    environ["PYTHONPATH"] = ":".join([*python_path, sdk])
    return Settings(
        tier=tier,
        binds=_parents_first(binds),
        links=links,
        folders=tuple(f"/tmp/.writable{path}" for path in writable),
        environ=environ,
        path=(*([os.path.dirname(script)] if script else []), *python_path, sdk),
        cwd=cwd,
        command=command,
        script=script,
        argv=argv,
        own=(folder, cwd),
        port=PORT,
    )


def verifier_settings(interpreter: Interpreter, tier: str, sdk: str) -> Settings:
    places = _places(_seen(interpreter), tier, sdk)
    # HTTP clients read the machine's certificates when they are made, 25 ms, and nothing here speaks TLS.
    environ = {**_common(interpreter), "PYTHONPATH": sdk, "SSL_CERT_DIR": "/tmp"}
    del environ["MCP_HOST"], environ["MCP_PORT"]
    return Settings(tier, _parents_first(places.binds), places.links, environ=environ, path=(sdk,), port=PORT)


def _common(interpreter: Interpreter) -> dict[str, str]:
    return {**_COMMON, "PATH": f"{interpreter.prefix}/bin:/usr/local/bin:/usr/bin:/bin"}


def _seen(interpreter: Interpreter) -> list[str]:
    return [*_SYSTEM, interpreter.base_prefix, interpreter.prefix, interpreter.executable]


def _places(paths: list[str], tier: str, sdk: str) -> _Places:
    """Binds of the real paths, and the links that lead to them; the SDK where it belongs."""
    binds: dict[str, str] = {}
    links: dict[str, str] = {}
    for path in paths:
        if os.path.lexists(path):
            binds[_follow(path, links)] = ""
    kept = [path for path in binds if not any(_within(path, other) for other in binds if other != path)]
    bound = [(path, path) for path in kept]
    for name in ("__init__.py", "env"):
        source = str(_PACKAGE / name)
        bound.append((source, f"{sdk}/agent_env/{name}" if tier == "namespaces" else source))
    if tier != "namespaces":
        bound.append((sdk, sdk))
    outside = {path: target for path, target in links.items() if not any(_within(path, other) for other in kept)}
    return _Places(tuple(bound), tuple(sorted(outside.items())))


def _follow(path: str, links: dict[str, str]) -> str:
    """Where path really is; every symbolic link on the way is noted in links."""
    done, rest = "/", [part for part in os.path.abspath(path).split("/") if part]
    for _ in range(1000):
        if not rest:
            return done
        step = os.path.join(done, rest.pop(0))
        if os.path.islink(step):
            target = os.readlink(step)
            links[step] = target
            whole = os.path.normpath(os.path.join(done, target, *rest))
            done, rest = "/", [part for part in whole.split("/") if part]
        else:
            done = step
    raise OSError(f"{path}: too many symbolic links")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _is_free(path: str, places: _Places) -> bool:
    """Can this path be made in the sandbox's root?"""
    path = os.path.normpath(path)
    taken = ("/dev", "/proc", "/etc", "/tmp", "/run", "/sys")
    return path.startswith("/") and path != "/" and not any(_within(path, t) for t in taken) and not places.holds(path)


def _parents_first(binds: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(binds, key=lambda bind: (bind[1].count("/"), bind[1])))


def _command(env: EnvSpec, interpreter: Interpreter) -> tuple[str, ...]:
    first, *rest = env.command
    return (interpreter.executable if first in ("python", "python3") else first, *rest)


def _script(command: tuple[str, ...], cwd: str) -> tuple[str | None, tuple[str, ...]]:
    """`python server.py ARGS` can be run by a fork: the script's absolute path, and its argv. Else None."""
    rest = list(command[1:])
    while rest and rest[0] == "-u":
        rest.pop(0)
    if os.path.basename(command[0]).startswith("python") and rest and rest[0].endswith(".py"):
        return os.path.join(cwd, rest[0]), tuple(rest)
    return None, ()
