"""Virtual environments with others' packages, and wheels, got once each and kept in $AGENT_ENV_PEERS_CACHE."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

__all__ = ["peer_python", "peer_wheel", "public_examples"]


def peer_python(*requirements: str) -> Path:
    """A Python that has these requirements, and nothing of ours. Skips the test where they can't be had; in CI fails.

    Kept under $AGENT_ENV_PEERS_CACHE, or ~/.cache/agent-env-peers; a build that was interrupted is done again.
    """
    cache = _cache()
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    folder = cache / "-".join([version, *(one.replace("==", "-") for one in requirements)])
    ready = folder / "ready"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                _give_up(f"{', '.join(requirements)} can't be installed: {done.stderr.strip()[-500:]}")
            ready.touch()
    return folder / "bin" / "python"


def peer_wheel(requirement: str) -> Path:
    """A package's wheel, of which nothing is installed. Skips or fails as peer_python does."""
    folder = _cache() / f"wheel-{requirement.replace('==', '-')}"
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("*.whl")):
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                _give_up(f"{requirement} can't be downloaded: {done.stderr.strip()[-500:]}")
    return next(folder.glob("*.whl"))


def public_examples(folder: Path) -> Path:
    """The public framework's example bundles, unpacked there (its package, installed, would shadow ours)."""
    with zipfile.ZipFile(peer_wheel("agentenv-framework==0.9.1364")) as wheel:
        names = [name for name in wheel.namelist() if name.startswith("agent_env/examples/")]
        wheel.extractall(folder, names)
    return folder / "agent_env" / "examples"


def _cache() -> Path:
    cache = Path(os.environ.get("AGENT_ENV_PEERS_CACHE") or Path.home() / ".cache" / "agent-env-peers")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def _give_up(why: str) -> None:
    pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
