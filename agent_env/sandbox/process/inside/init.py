"""Process 1 of an env's PID namespace: it collects the orphans there, and its end is the end of all.

The server itself could be process 1, but then nobody collects what it and its tools leave behind, until the limit of
processes is used up by dead ones, and signals without a handler would do nothing to it. So the fork server forks both
into the namespace, this one first. It stays in the fork server's user namespace, where the env can't trace it, and a
process 1 gets no signal from below that it has no handler for.
"""

from __future__ import annotations

import os
from typing import NoReturn

from . import linux, pausing

__all__ = ["init_program", "start_init"]


def init_program() -> int:
    """A descriptor of what `start_init` executes; -1 where there is no such program."""
    code = pausing.program()
    if code is None:
        return -1
    fd = os.memfd_create("init", os.MFD_CLOEXEC)
    os.write(fd, code)
    return fd


def start_init(name: str, program: int) -> int:
    """Its process id. Raises OSError if there can't be another process.

    A spawn and no fork, where there is a program: a fork copies the fork server's page tables, twice the work of all
    else here, and then each page that the fork server writes to. It dies with the fork server since that is process 1
    of a namespace around this one.
    """
    if program >= 0:
        try:
            return os.posix_spawn(f"/proc/self/fd/{program}", (name,), {})  # exec closes every other descriptor
        except PermissionError:  # memory may not be executed here (vm.memfd_noexec)
            pass
    pid = linux.bare_fork()
    if pid == 0:
        _wait(name)
    return pid


def _wait(name: str) -> NoReturn:
    """In a bare fork: what the program does."""
    try:
        linux.die_with_parent()
        linux.ignore_children()
        linux.close_from(3)
        linux.name_process(name)
        linux.wait_for_ever()
    finally:
        os._exit(1)
