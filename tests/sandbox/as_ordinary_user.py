"""Run pytest as an ordinary user: `python -m tests.sandbox.as_ordinary_user PYTEST-ARGUMENTS`, started by root.

The interpreter or the checkout may lie in a home that only root can enter. In a mount namespace of our own such a home
is covered by an empty one, in which just these folders appear again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agent_env.sandbox.process.inside import linux

UID = 65534


def show(paths: list[str]) -> None:
    """Make these paths reachable for everybody, here."""
    linux.unshare(linux.NEWNS)
    linux.mount(None, "/", None, linux.REC | linux.PRIVATE)
    closed = {path: folder for path in paths if (folder := closed_folder(path))}
    held = {path: os.open(path, os.O_PATH) for path in closed}
    for folder in set(closed.values()):
        linux.mount("tmpfs", folder, "tmpfs", 0, "mode=755")
    for path, fd in held.items():
        os.makedirs(path, exist_ok=True)
        linux.mount(f"/proc/self/fd/{fd}", path, None, linux.BIND | linux.REC)
        os.close(fd)


def closed_folder(path: str) -> str | None:
    """The first folder on the way to path that others can't enter."""
    for folder in [*reversed(Path(path).parents), Path(path)]:
        if not folder.stat().st_mode & 0o001:
            return str(folder)
    return None


def main() -> None:
    root = Path(__file__).resolve().parents[2]
    show([sys.base_prefix, sys.prefix, str(root)])
    os.chdir(root)
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    environ = {"PATH": os.environ["PATH"], "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    os.execve(sys.executable, [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *sys.argv[1:]], environ)


if __name__ == "__main__":
    main()
