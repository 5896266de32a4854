"""Memory, process and CPU limits for all of an env's processes together, where cgroups can be written: v1 or v2.

    v1   /sys/fs/cgroup/{memory,pids,cpu}/<our own>/agent-env/<owner>/<env>
    v2   /sys/fs/cgroup/agent-env/<owner>/<env> for root; below our own where it is delegated to this user

One whose processes have ended is used again: to make and remove one costs the kernel a millisecond and more.

The owner's name lets a later server remove what a dead one left. Kernel docs: admin-guide/cgroup-v1, cgroup-v2.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agent_env.sandbox.interface import Limits
from agent_env.sandbox.owners import owner_state, this_owner

__all__ = ["Cgroup", "Cgroups"]

_TOP = Path("/sys/fs/cgroup")
_FOLDER = "agent-env"
_CONTROLLERS = ("memory", "pids", "cpu")
_REMOVE_SECONDS = 2.0
_KEPT = 64
"""Empty ones that wait to be used again."""
_numbers = itertools.count(1)
_users: Counter[tuple[Path, ...]] = Counter()


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One env's: a folder in each hierarchy. Who was given it releases it when its processes have ended."""

    owner: Cgroups = field(repr=False, compare=False)
    folders: tuple[Path, ...]
    limits: tuple[int, int]
    """MiB of memory, and processes."""
    events: Path
    """The file that counts kills for want of memory: `oom_kill N`."""
    door: str
    """The file in each folder by which a process enters: it writes 0 there. What it starts later is in as well.

    In v1 a thread that moves itself alone needs no lock of the whole machine's, which the kernel waits for.
    Whoever has the file open may, whatever user it is: so the file is opened here and passed to the child.
    """

    def open_doors(self) -> list[int]:
        """Descriptors, which the caller closes. Raises OSError."""
        opened: list[int] = []
        try:
            for folder in self.folders:
                opened.append(os.open(folder / self.door, os.O_WRONLY | os.O_CLOEXEC))
        except BaseException:
            for fd in opened:
                os.close(fd)
            raise
        return opened

    def out_of_memory(self) -> bool:
        try:
            lines = self.events.read_text().splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)

    def empty(self) -> bool:
        """Whether all of its processes have ended; False where that can't be read."""
        try:
            return not (self.folders[0] / "cgroup.procs").read_bytes()
        except OSError:
            return False

    async def release(self) -> None:
        """The kernel may need a moment to let go of processes that have ended."""
        if self.owner.keep(self):
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + _REMOVE_SECONDS
        left = list(self.folders)
        while left := [folder for folder in left if not _remove(folder)]:
            if loop.time() > until:
                return  # the next server's start reaps it
            await asyncio.sleep(0.01)


class Cgroups:
    """Makes them. `find()` says whether that is possible here."""

    def __init__(self, bases: tuple[Path, ...], *, v2: bool) -> None:
        """bases: one folder per hierarchy, this owner's own; they exist."""
        self._bases = bases
        self._free: list[Cgroup] = []
        self._closed = False
        _users[bases] += 1
        self._v2 = v2

    @classmethod
    def find(cls, top: Path = _TOP, own: str | None = None) -> Cgroups | None:
        """Reap what dead owners left, and make this owner's folders. None where this user may not write them.

        own: the text of /proc/self/cgroup.
        """
        own = Path("/proc/self/cgroup").read_text() if own is None else own
        v2 = (top / "cgroup.controllers").exists()
        for bases in _candidates(top, own, v2):
            folders = tuple(base / _FOLDER for base in bases)
            try:
                for base, folder in zip(bases, folders, strict=True):
                    if v2:
                        _delegate(base)
                    folder.mkdir(exist_ok=True)
                    if v2:
                        _delegate(folder)
                    _reap(folder)
                    (folder / str(this_owner())).mkdir(parents=True, exist_ok=True)  # another may just have closed
                    if v2:
                        _delegate(folder / str(this_owner()))
            except OSError:
                continue
            return cls(tuple(folder / str(this_owner()) for folder in folders), v2=v2)
        return None

    @property
    def folders(self) -> tuple[Path, ...]:
        """This owner's."""
        return self._bases

    def make(self, limits: Limits) -> Cgroup:
        """Raises OSError if the kernel refuses (then it has been removed again)."""
        wanted = (limits.memory_mib, limits.processes)
        for index, cgroup in enumerate(self._free):
            if cgroup.limits == wanted:
                return self._free.pop(index)
        number = next(_numbers)
        folders = tuple(base / str(number) for base in self._bases)
        memory = str(limits.memory_mib << 20)
        try:
            for folder in folders:
                folder.mkdir()
            if self._v2:
                values = {"memory.max": memory, "memory.oom.group": "1", "pids.max": str(limits.processes)}
                for name, value in values.items():
                    (folders[0] / name).write_text(value)
                _write_if_there(folders[0] / "memory.swap.max", "0")
                return Cgroup(self, folders, wanted, folders[0] / "memory.events", "cgroup.procs")
            (folders[0] / "memory.limit_in_bytes").write_text(memory)
            _write_if_there(folders[0] / "memory.memsw.limit_in_bytes", memory)
            (folders[1] / "pids.max").write_text(str(limits.processes))
        except BaseException:
            for folder in folders:
                _remove(folder)
            raise
        return Cgroup(self, folders, wanted, folders[0] / "memory.oom_control", "tasks")

    def keep(self, cgroup: Cgroup) -> bool:
        """To be used again, if it can be: not one that counts a kill, which would be taken to be the next env's."""
        if self._closed or len(self._free) >= _KEPT or not cgroup.empty() or cgroup.out_of_memory():
            return False
        self._free.append(cgroup)
        return True

    def close(self) -> None:
        """Remove this owner's folders, if nothing is left in them, and the one of all owners after the last."""
        self._closed = True
        for cgroup in self._free:
            for folder in cgroup.folders:
                _remove(folder)
        self._free.clear()
        _users[self._bases] -= 1
        if _users[self._bases] == 0:  # else another sandbox of this process makes its own there
            for base in self._bases:
                _remove(base)
                _remove(base.parent)


def _candidates(top: Path, own: str, v2: bool) -> list[tuple[Path, ...]]:
    places = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        places.update({name: path.lstrip("/") for name in controllers.split(",")})
    if v2:
        below = top / places.get("", "")
        return [(top,), (below,)] if os.geteuid() == 0 else [(below,)]
    # In a container the path may be the host's, of which nothing is seen here.
    bases = [(top / name / places.get(name, ""), top / name) for name in _CONTROLLERS]
    return [tuple(inner if inner.exists() else outer for inner, outer in bases)]


def _delegate(folder: Path) -> None:
    """v2: let the folders below have controllers. Refused (EBUSY) while processes live in the folder itself."""
    control = folder / "cgroup.subtree_control"
    enabled = control.read_text().split()
    if missing := [name for name in _CONTROLLERS if name not in enabled]:
        control.write_text(" ".join(f"+{name}" for name in missing))


def _write_if_there(file: Path, value: str) -> None:
    """Swap isn't accounted everywhere."""
    try:
        file.write_text(value)
    except OSError:
        return


def _reap(folder: Path) -> None:
    """Of owners known to be dead, whose processes have ended with them."""
    for owner in folder.iterdir():
        if owner.is_dir() and owner_state(owner.name) == "dead":
            for child in owner.iterdir():
                if child.is_dir():
                    _remove(child)
            _remove(owner)


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
