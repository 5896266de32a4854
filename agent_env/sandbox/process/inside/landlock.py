"""Landlock: a process gives up files, TCP and others' signals for good, without any rights of its own. landlock(7)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from . import linux

__all__ = ["abi", "restrict"]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH, _NET_PORT = 1, 2
_EXECUTE, _READ_FILE, _READ_DIR = 1, 4, 8
_ON_FILES = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000  # execute, write, read, truncate, ioctl: what a rule for a file may say
_BIND_TCP, _CONNECT_TCP = 1, 2


def abi() -> int:
    """The kernel's Landlock version; 0 where there is none. 4 (Linux 6.7) has TCP, 6 (6.12) signals."""
    try:
        return linux.syscall("landlock", _CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def restrict(read: Iterable[str], write: Iterable[str], connect_port: int | None = None) -> None:
    """From now on: read and execute below `read`, everything below `write`, TCP to `connect_port` and nowhere else.

    Paths that don't exist are left out. Raises OSError where Landlock is missing.
    """
    version = abi()
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    network = _BIND_TCP | _CONNECT_TCP if version >= 4 else 0
    scoped = 3 if version >= 6 else 0  # abstract unix sockets, signals
    attributes = struct.pack("QQQ", files, network, scoped)[: 8 if version < 4 else 16 if version < 6 else 24]
    size = ctypes.c_size_t(len(attributes))
    ruleset = linux.syscall("landlock_create_ruleset", _CREATE_RULESET, attributes, size, 0)
    try:
        for paths, access in ((read, _EXECUTE | _READ_FILE | _READ_DIR), (write, files)):
            for path in paths:
                _allow(ruleset, path, access)
        if connect_port is not None:
            rule = struct.pack("=QQ", _CONNECT_TCP, connect_port)
            linux.syscall("landlock_add_rule", _ADD_RULE, ruleset, _NET_PORT, rule, 0)
        linux.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        allowed = access if os.path.isdir(path) else access & _ON_FILES
        linux.syscall(
            f"landlock_add_rule {path}", _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, fd), 0
        )
    finally:
        os.close(fd)
