"""Virtual environments with others' packages, built once each and kept in $AGENT_ENV_PEERS_CACHE."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["peer_python"]


def peer_python(*requirements: str) -> Path:
    """A Python that has these requirements, and nothing of ours. Skips the test where they can't be had; in CI fails.

    Kept under $AGENT_ENV_PEERS_CACHE, or ~/.cache/agent-env-peers; a build that was interrupted is done again.
    """
    cache = Path(os.environ.get("AGENT_ENV_PEERS_CACHE") or Path.home() / ".cache" / "agent-env-peers")
    cache.mkdir(parents=True, exist_ok=True)
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
                why = f"{', '.join(requirements)} can't be installed: {done.stderr.strip()[-500:]}"
                pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
            ready.touch()
    return folder / "bin" / "python"
