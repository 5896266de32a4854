"""Folders of a sandbox without a mount namespace: one to write for each child, one to import `agent_env.env` from.

They lie in /tmp (or $TMPDIR) below a folder that carries its owner's name, so a later server removes a dead one's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from agent_env.sandbox.owners import owner_state, this_owner

__all__ = ["TmpFolders"]

_PREFIX = "agent-env-tmp."
_MAX_FILES = 16384
_EVERY = 0.5
_LEAST_ROOM = 16 << 20
"""Bytes that must be left on the disk: envs that can't write what they may would fail, and it would look like the
policy's doing."""
_PACKAGE = Path(__file__).resolve().parents[2]


class TmpFolders:
    """This owner's. Nothing but a look every half second bounds what a child writes: `watch` it."""

    def __init__(self) -> None:
        """Reaps what dead owners left. Raises OSError if another user holds the name."""
        top = Path(tempfile.gettempdir())
        for left in top.glob(f"{_PREFIX}*"):
            if owner_state(left.name.removeprefix(_PREFIX)) == "dead" and left.lstat().st_uid == os.getuid():
                shutil.rmtree(left, ignore_errors=True)
        self._ours = top / f"{_PREFIX}{this_owner()}"
        self._ours.mkdir(exist_ok=True)
        status = self._ours.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{self._ours} belongs to somebody else")
        self.base = Path(tempfile.mkdtemp(dir=self._ours))
        for folder in (self._ours, self.base):
            folder.chmod(0o711)  # a child, another user, may pass through to its own
        self.library = self._make_library()
        self._count = 0

    def make(self, uid: int, size: int) -> Path:
        """An empty folder of that user's alone, for up to `size` bytes. Raises OSError; ENOSPC: the disk is full."""
        disk = os.statvfs(self.base)
        left, needed = disk.f_bavail * disk.f_frsize, min(size, _LEAST_ROOM)
        if left < needed:
            raise OSError(
                errno.ENOSPC,
                f"the disk is full: {left >> 20} MiB are left of the {needed >> 20} that an env needs in",
                str(self.base.parent.parent),
            )
        self._count += 1
        folder = self.base / str(self._count)
        folder.mkdir(mode=0o700)
        if uid not in (-1, os.getuid()):
            os.chown(folder, uid, uid)
        return folder

    @staticmethod
    async def remove(folder: Path) -> None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def watch(self, folder: Path, size: int, too_much: Callable[[], None]) -> None:
        """Call too_much() once there are more than `size` bytes, or far too many files. Runs until cancelled."""
        while await asyncio.to_thread(_fits, folder, size):  # noqa: ASYNC110 (nobody tells us of a write)
            await asyncio.sleep(_EVERY)
        too_much()

    def close(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)
        try:
            self._ours.rmdir()
        except OSError:
            return  # another sandbox of this process is there as well

    def _make_library(self) -> Path:
        """A folder that holds `agent_env.env` and nothing else of agent_env."""
        library = self.base / "lib"
        (library / "agent_env").mkdir(parents=True, exist_ok=True)
        for folder in (library, library / "agent_env"):
            folder.chmod(0o755)
        for name in ("__init__.py", "env"):
            link = library / "agent_env" / name
            if not link.is_symlink():
                link.symlink_to(_PACKAGE / name)
        return library


def _fits(folder: Path, size: int) -> bool:
    files = total = 0
    stack = [str(folder)]
    while stack:
        try:
            with os.scandir(stack.pop()) as entries:
                for entry in entries:
                    files += 1
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if total > size or files > _MAX_FILES:
                        return False
        except OSError:
            continue  # it changes under us
    return True
