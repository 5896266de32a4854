"""An env's Python: this process's own if that has all its requirements, else a virtual environment, built once.

    $AGENT_ENV_CACHE, $XDG_CACHE_HOME/agent-env or ~/.cache/agent-env
        venvs/<key>/            the environment; complete once it holds `.complete`
        venvs/<key>.lock        held while it is built, so that servers on one machine build it once

The key is a hash of the requirements' text, the Python and the machine. Built at its final path, since a virtual
environment's scripts name that path. Installing runs what the packages bring (an sdist's setup.py) with this process's
rights, as `pip install` always does.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.interface import DeployFailed
from agent_env.sandbox.process.layout import Interpreter

__all__ = ["cache_folder", "interpreter_for", "unsatisfied"]

_COMPLETE = ".complete"
_OWN = "agent-env"
"""Given to every env by its sandbox, so never installed for one."""
_BUILD_SECONDS = 1800.0
_TAIL = 4000


async def interpreter_for(env: EnvSpec) -> Interpreter:
    """Builds the env's virtual environment if need be. Raises DeployFailed with the end of the installer's output."""
    if env.requirements is None:
        return Interpreter.own()
    try:
        text = env.requirements.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DeployFailed(f"env {env.name!r}: {env.requirements} can't be read: {error}") from None
    lines = [line for line in _lines(text) if _name(line) != _OWN]
    if not lines or not await asyncio.to_thread(unsatisfied, lines):
        return Interpreter.own()
    folder = cache_folder() / "venvs" / _key(env, lines)
    if not (folder / _COMPLETE).exists():
        try:
            await _build_once(env, folder, lines)
        except OSError as error:
            raise DeployFailed(f"env {env.name!r}: its virtual environment can't be built: {error}") from error
    return Interpreter.of_venv(folder)


def cache_folder() -> Path:
    if chosen := os.environ.get("AGENT_ENV_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "agent-env"


def unsatisfied(lines: list[str]) -> list[str]:
    """Those requirements that this process's Python doesn't meet, or that can't be judged (options, links, extras of
    unknown packages, no `packaging` to read them with)."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        return lines

    def met(text: str, extra: str = "") -> bool:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            return False
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
            return True
        try:
            found = importlib.metadata.distribution(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            return False
        if wanted.url or not wanted.specifier.contains(found.version, prereleases=True):
            return False
        return all(met(further, name) for name in wanted.extras for further in found.requires or [])

    return [line for line in lines if not met(line)]


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", text)
    return [line for raw in joined.splitlines() if (line := re.sub(r"(^|\s)#.*", "", raw).strip())]


def _name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", line)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _key(env: EnvSpec, lines: list[str]) -> str:
    # A line that names files (-r, -e, ./wheel) depends on the env's folder as well.
    files = [line for line in lines if line.startswith(("-", ".", "/")) or "@ file:" in line]
    parts = [*lines, sys.version, sys.base_prefix, platform.machine(), *([env.digest] if files else [])]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


async def _build_once(env: EnvSpec, folder: Path, lines: list[str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as file:
        while not _locked(file.fileno()):  # noqa: ASYNC110 (another process has it)
            await asyncio.sleep(0.1)
        if (folder / _COMPLETE).exists():
            return
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)  # what a build left that was broken off
        wanted = folder.parent / f"{folder.name}.txt"
        wanted.write_text("\n".join(lines) + "\n")
        try:
            for command in _commands(folder, wanted):
                await _run(env, command)
            (folder / _COMPLETE).write_text(time.strftime("%Y-%m-%d %H:%M:%S\n"))
        finally:
            wanted.unlink(missing_ok=True)
            if not (folder / _COMPLETE).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _commands(folder: Path, wanted: Path) -> Iterator[list[str]]:
    python = str(folder / "bin" / "python")
    if uv := shutil.which("uv"):
        yield [uv, "venv", "--quiet", "--python", sys.executable, str(folder)]
        yield [uv, "pip", "install", "--python", python, "--requirement", str(wanted)]
    else:
        yield [sys.executable, "-m", "venv", str(folder)]
        yield [
            python,
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
            "--requirement",
            str(wanted),
        ]


async def _run(env: EnvSpec, command: list[str]) -> None:
    """Raises DeployFailed with its output's end. Cancelled: it is killed with all that it started."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=env.folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        umask=0o022,  # an ordinary user, whom the env runs as, must be able to read it
    )
    with _ended(process):
        assert process.stdout is not None
        output = bytearray()
        try:
            async with asyncio.timeout(_BUILD_SECONDS):
                while data := await process.stdout.read(1 << 16):
                    output += data
                    del output[:-_TAIL]
                status = await process.wait()
        except TimeoutError:
            status = -signal.SIGKILL
    if status != 0:
        printed, full = output.decode(errors="replace").strip(), os.strerror(errno.ENOSPC)
        raise DeployFailed(
            f"env {env.name!r}: its requirements could not be installed ({' '.join(command)}: status {status})\n"
            f"{printed}"
        ) from (OSError(errno.ENOSPC, full) if full in printed else None)


@contextmanager
def _ended(process: asyncio.subprocess.Process) -> Iterator[None]:
    try:
        yield
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
