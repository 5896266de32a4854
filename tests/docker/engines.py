"""An engine of a test's own, beside the one that all tests share: to be killed, or to run out of room."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import IMAGE, SCRIPT


class Engine:
    """An engine that a test may break, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environ = {**os.environ, "AGENT_ENV_DOCKER_DIR": str(folder), "PYTHON": sys.executable}
        self._environ["DOCKER_HOST"] = f"unix://{folder}/docker.sock"

    @contextlib.contextmanager
    def running(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Started, with the image that envs are built from, and what DOCKER_HOST names; ended afterwards."""
        if os.getuid() != 0:
            pytest.skip("only root can start an engine of its own")
        try:
            self.script("start")
            self.script("image", IMAGE)
            monkeypatch.setenv("DOCKER_HOST", f"unix://{self.folder}/docker.sock")
            yield
        finally:
            self.script("stop")

    def script(self, *arguments: str) -> None:
        subprocess.run([SCRIPT, *arguments], env=self._environ, check=True, capture_output=True, timeout=120)

    def containers(self) -> str:
        listed = subprocess.run(["docker", "ps", "-aq"], env=self._environ, check=True, capture_output=True, text=True)
        return listed.stdout

    def kill(self) -> None:
        """As a crash would: its containerd goes too, or the next one finds it."""
        for name in ("dockerd.pid", "exec/containerd/containerd.pid"):
            os.kill(int((self.folder / name).read_text()), signal.SIGKILL)
