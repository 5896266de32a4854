"""Ending what runs in containers without asking the engine, which needs a process of its own for each."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Collection
from pathlib import Path

__all__ = ["kill_processes"]

CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


def kill_processes(containers: Collection[str]) -> int:
    """SIGKILL every process of these containers (ids) that this user may signal; returns how many were.

    Engines name a container's cgroups after it, whichever driver they use. What can't be seen or signalled from here is
    left to the engine, which removes the containers anyway.
    """
    killed = 0
    for name in os.listdir("/proc"):
        if name.isdecimal() and _container(name) in containers:
            killed += _kill(int(name), containers)
    return killed


def _kill(pid: int, containers: Collection[str]) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Looked at again: now a reused number can't be mistaken, since the handle would be of the one that is gone.
        if _container(str(pid)) not in containers:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _container(pid: str) -> str | None:
    """The id of the container that a process is in."""
    try:
        found = CONTAINER_ID.findall(Path("/proc", pid, "cgroup").read_text())
    except OSError:
        return None
    return found[-1] if found else None
