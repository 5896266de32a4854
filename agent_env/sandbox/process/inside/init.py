"""Process 1 of an env's PID namespace: collects the orphans there, and ends with the env's server.

The server itself could be process 1, but then nobody collects what it and its tools leave behind, until the limit of
processes is used up by dead ones, and signals without a handler would do nothing to it.
"""

from __future__ import annotations

import os
import select
import signal

from . import linux

__all__ = ["SIGNAL_BASE", "become_init"]

SIGNAL_BASE = 128
"""Exit status of process 1 when its server was killed by signal n: this plus n, as shells have it."""


def become_init(channel: int, name: str) -> None:
    """Fork, once `channel` can be read; returns in the child. The parent passes SIGUSR1 on, and exits as the child did.

    Called before the walls: what the child does there is then no memory of the parent's, which stays in the fork
    server's user namespace, out of the env's reach (it can't be traced, and ignores signals of its own namespace).
    """
    linux.die_with_parent()
    linux.name_process(name)
    select.select([channel], [], [])
    server = os.fork()
    if server == 0:
        return
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGUSR1, lambda number, _: os.kill(server, number))
    os.closerange(0, 1 << 16)
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            os._exit(1)
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else SIGNAL_BASE - code)
