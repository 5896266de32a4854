"""Who made a sandbox: an identity that outlives its process, so that only what a dead owner left is ever removed.

A pid alone can be reused, so an owner is a pid, its start time, the boot it belongs to, the pid namespace that the
number counts in, and the host. Its string form is valid in container labels, cgroup names and file names, and starts
with the pid, for people: `4711-183224-9f8e7d6c-4026531836-1a2b3c4d`.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = [
    "Owner",
    "OwnerState",
    "is_alive",
    "list_folders",
    "owner_state",
    "private_folder",
    "reap_folders",
    "this_owner",
]

LONGEST_RUNTIME_FOLDER = 22
"""As /run/user/4294967295: the path of a unix socket in an owner's folder must stay under 108 bytes."""

OwnerState = Literal["alive", "dead", "unknown"]
"""`unknown`: of another host or another pid namespace, so it can't be judged from here. Never removed on its own."""


@dataclass(frozen=True, order=True, slots=True)
class Owner:
    pid: int
    started: int
    """Clock ticks after boot: field 22 of /proc/PID/stat, see proc_pid_stat(5)."""
    boot: str
    """The first 8 hex digits of the kernel's boot id."""
    pid_namespace: int
    """Inode of /proc/self/ns/pid."""
    host: str
    """8 hex digits: a hash of the host's name and machine id. Two hosts may share one Docker daemon."""

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}-{self.boot}-{self.pid_namespace}-{self.host}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that `str()` wrote; None for anything else."""
        parts = text.split("-")
        if len(parts) != 5 or not (parts[0].isdecimal() and parts[1].isdecimal() and parts[3].isdecimal()):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2], int(parts[3]), parts[4])


def this_owner() -> Owner:
    """This process. A forked child is an owner of its own."""
    return _owner_of(os.getpid())


def owner_state(owner: Owner | str) -> OwnerState:
    """Whether the process that this names still runs. A zombie is dead: it can't clean up any more."""
    parsed = Owner.parse(owner) if isinstance(owner, str) else owner
    me = this_owner()
    if parsed is None or parsed.host != me.host:
        return "unknown"
    if parsed.boot != me.boot:
        return "dead"
    if parsed.pid_namespace != me.pid_namespace:
        return "unknown"
    return "alive" if _start_ticks(parsed.pid) == parsed.started else "dead"


def is_alive(owner: Owner | str) -> bool:
    """False only if the owner is known to be dead."""
    return owner_state(owner) != "dead"


def private_folder(owner: Owner | None = None) -> Path:
    """The folder of an owner (default: this process) for sockets and other files of its sandboxes, made if need be.

    It lies in `$XDG_RUNTIME_DIR/agent-env` or `/tmp/agent-env-UID`, which only this user can enter. Not in $TMPDIR:
    paths in it must stay short. Raises OSError if another user holds that name.
    """
    folder = _root() / str(owner or this_owner())
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def list_folders() -> list[Path]:
    """The folders that there are, of any owner."""
    try:
        return sorted(path for path in _root().iterdir() if Owner.parse(path.name))
    except OSError:
        return []


def reap_folders(owner: Owner | None = None) -> list[Path]:
    """Remove the folders of dead owners, or the one of the owner given. Returns the paths of those removed."""
    wanted = None if owner is None else str(owner)
    found = [path for path in list_folders() if (path.name == wanted if wanted else owner_state(path.name) == "dead")]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in found if not path.exists()]


def _root() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and len(runtime) <= LONGEST_RUNTIME_FOLDER and os.access(runtime, os.W_OK):
        root = Path(runtime, "agent-env")
    else:
        root = Path("/tmp", f"agent-env-{os.getuid()}")
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{root} must be a folder that only uid {os.getuid()} can enter; remove or chmod it")
    return root


@functools.lru_cache(maxsize=1)
def _owner_of(pid: int) -> Owner:
    started = _start_ticks(pid)
    if started is None:
        raise RuntimeError(f"/proc/{pid}/stat can't be read: agent_env needs Linux with /proc (this is {sys.platform})")
    return Owner(pid, started, *_machine())


def _machine() -> tuple[str, int, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:8]
    try:
        machine_id = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine_id = ""
    host = hashlib.sha256(f"{socket.gethostname()} {machine_id}".encode()).hexdigest()[:8]
    return boot, os.stat("/proc/self/ns/pid").st_ino, host


def _start_ticks(pid: int) -> int | None:
    """None if no such process runs, or it has ended and only waits to be collected."""
    try:
        # The name (field 2) may hold spaces and brackets: count from its closing one.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
