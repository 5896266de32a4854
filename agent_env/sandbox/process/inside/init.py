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

__all__ = ["be_init", "init_program"]


def init_program() -> int:
    """A descriptor of what `be_init` executes; -1 where there is no such program."""
    code = pausing.program()
    if code is None:
        return -1
    fd = os.memfd_create("init", os.MFD_CLOEXEC)
    os.write(fd, code)
    return fd


def be_init(name: str, program: int) -> NoReturn:
    """In a bare fork: wait to be killed, as a program that holds none of the fork server's memory, if there is one."""
    try:
        linux.die_with_parent()
        linux.ignore_children()  # which exec keeps, as it does the death with the parent
        try:
            os.execve(program, (name,), {})  # every other descriptor is closed by it
        except OSError:  # no program for this processor, or memory may not be executed here (vm.memfd_noexec)
            linux.close_from(3)
            linux.name_process(name)
            linux.wait_for_ever()
    finally:
        os._exit(1)
