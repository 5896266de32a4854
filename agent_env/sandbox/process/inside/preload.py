"""Libraries, imported once into a fork server so that every child has them already; and what must not be forked.

Only an env's *libraries*, whose names a rehearsal found: what the env's own modules make when they are imported (random
generators, threads, open files) is then each episode's own.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import py_compile
import sys
from collections.abc import Iterable

from . import linux

__all__ = ["BYTECODE", "Before", "cache_bytecode", "children", "preload"]

BYTECODE = "/run/agent-env/bytecode"
"""Where the env's own modules lie compiled, in a sandbox with a root of its own."""

_HARMLESS = ("/dev/null", "/dev/urandom", "/dev/random")


class Before:
    """What the fork server held before a preload, to tell afterwards what the preload left."""

    def __init__(self) -> None:
        self.files = _open_files()
        self.children = children()

    def why_not_fork(self) -> str | None:
        """What would not survive a fork, or would be shared by all episodes, in words; None if nothing is seen."""
        names = [_read(f"/proc/self/task/{task}/comm").strip() for task in os.listdir("/proc/self/task")]
        if len(names) > 1:
            threading = sys.modules.get("threading")
            known = [thread.name for thread in threading.enumerate()[1:]] if threading else []
            return f"{len(names) - 1} threads were started ({', '.join(known or names[1:])})"
        if started := children() - self.children:
            return f"{len(started)} processes were started"
        files = _open_files()
        left = {name for fd, name in files.items() if self.files.get(fd) != name and name not in _HARMLESS}
        return f"files or sockets were left open ({', '.join(sorted(left))})" if left else None


def preload(names: Iterable[str], own: Iterable[str]) -> None:
    """Import modules in the order in which a rehearsal did, those in the folders `own` left out."""
    folders = tuple(f"{folder}/" for folder in own)
    for name in names:
        try:
            if not _is_own(name, folders):
                importlib.import_module(name)
        except BaseException:  # whatever it raises: a child then imports it as it would have without a preload
            continue
    gc.collect()
    gc.freeze()


def cache_bytecode(files: Iterable[str]) -> None:
    """Compile the env's own modules, which runs none of them: an episode then needn't, and can't write it anywhere."""
    linux.mount("tmpfs", BYTECODE, "tmpfs", linux.NOSUID | linux.NODEV, "size=16m,mode=755")
    sys.pycache_prefix = BYTECODE
    for file in files:
        try:
            py_compile.compile(file, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
        except OSError:
            break  # no room: the rest is compiled by each episode
    linux.read_only(BYTECODE)


def _is_own(name: str, folders: tuple[str, ...]) -> bool:
    """Does its top package lie in the env's folder, a virtual environment there aside? Imports nothing."""
    spec = importlib.util.find_spec(name.partition(".")[0])
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    return any(place.startswith(folders) and not place.startswith(f"{sys.prefix}/") for place in places)


def children() -> frozenset[str]:
    return frozenset(_read(f"/proc/self/task/{os.getpid()}/children").split())


def _open_files() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the listing's own
    return found


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
