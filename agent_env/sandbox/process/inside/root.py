"""A root folder of read-only binds: no home, no /etc but what is listed, nothing to write to."""

from __future__ import annotations

import os

from . import linux
from .preload import BYTECODE
from .settings import Settings

__all__ = ["enter_root", "private_tmp"]

_STAGE = "/tmp"
_NEW = "/tmp/newroot"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": "/tmp",
}
_FILES = {
    "/etc/passwd": "env:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    "/etc/group": "env:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost env\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


def enter_root(settings: Settings) -> None:
    """In a mount namespace of our own: build the root and make it ours. The old one can't be reached afterwards."""
    linux.mount(None, "/", None, linux.REC | linux.PRIVATE)
    # Held open: the stage is about to cover /tmp, where a test's bundle or a virtual environment may lie.
    sources = [(os.open(source, os.O_PATH | os.O_CLOEXEC), target) for source, target in settings.binds]
    linux.mount("tmpfs", _STAGE, "tmpfs", linux.NOSUID | linux.NODEV, "size=1m,mode=755")
    os.mkdir(_NEW)
    linux.mount("tmpfs", _NEW, "tmpfs", linux.NOSUID | linux.NODEV, "size=4m,mode=755")
    os.umask(0o022)  # the folders on the way to a bind can be entered, also where the machine's own can't
    for fd, target in sources:
        _bind(f"/proc/self/fd/{fd}", _NEW + target)
        linux.read_only(_NEW + target)  # at once: a later bind inside this one must not make folders on the machine
        os.close(fd)
    for device in _DEVICES:
        _bind(f"/dev/{device}", f"{_NEW}/dev/{device}")
    for path, target in (*settings.links, *_LINKS.items()):
        if not os.path.lexists(_NEW + path):
            os.makedirs(os.path.dirname(_NEW + path), exist_ok=True)
            os.symlink(target, _NEW + path)
    for path, text in _FILES.items():
        if not os.path.lexists(_NEW + path):
            os.makedirs(os.path.dirname(_NEW + path), exist_ok=True)
            with open(_NEW + path, "w") as file:
                file.write(text)
    os.makedirs(f"{_NEW}/tmp", exist_ok=True)
    os.makedirs(_NEW + BYTECODE)
    # The kernel lets a user namespace mount a /proc of its own only where one is seen whole.
    os.makedirs(f"{_NEW}/proc")
    linux.mount("/proc", f"{_NEW}/proc", None, linux.BIND | linux.REC)
    linux.pivot_root(_NEW)
    linux.read_only("/", recursive=False)


def private_tmp(settings: Settings, size: int) -> None:
    """A new, empty /tmp of at most `size` bytes; what is bound below /tmp is bound there again."""
    kept = [(os.open(path, os.O_PATH | os.O_CLOEXEC), path) for _, path in settings.binds if path.startswith("/tmp/")]
    options = f"size={size},mode=1777,nr_inodes=16384"
    linux.mount("tmpfs", "/tmp", "tmpfs", linux.NOSUID | linux.NODEV, options)
    for fd, path in kept:
        _bind(f"/proc/self/fd/{fd}", path)
        linux.read_only(path)
        os.close(fd)
    for folder in settings.folders:
        os.makedirs(folder, exist_ok=True)
    for path, target in settings.links:
        if path.startswith("/tmp/") and not os.path.lexists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    linux.mount(source, target, None, linux.BIND | linux.REC)
