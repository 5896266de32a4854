"""Process 1 of an env's PID namespace: it collects the orphans there, and its end is the end of all.

The server itself could be process 1, but then nobody collects what it and its tools leave behind, until the limit of
processes is used up by dead ones, and signals without a handler would do nothing to it. So the fork server forks both
into the namespace, this one first. It stays in the fork server's user namespace, where the env can't trace it, and a
process 1 gets no signal from below that it has no handler for.
"""

from __future__ import annotations

import os
from typing import NoReturn

from . import linux

__all__ = ["be_init"]

_SLEEP = ("/usr/bin/sleep", "/bin/sleep")
_FOR_EVER = str((1 << 31) - 1)


def be_init(name: str) -> NoReturn:
    """In a bare fork: wait to be killed, as a program that holds none of the fork server's memory, if there is one."""
    try:
        linux.die_with_parent()
        linux.close_from(3)
        linux.ignore_children()  # which exec keeps, as it does the death with the parent
        for sleep in _SLEEP:
            if os.path.exists(sleep):
                os.execve(sleep, (name, _FOR_EVER), {})
        linux.name_process(name)
        linux.wait_for_ever()
    finally:
        os._exit(1)
