"""The janitor: removes a server's containers, networks and folders once the server is gone.

The end of its standard input means that, SIGKILL included, since only the server holds the other end of the pipe. A
forked child of the server that holds it too doesn't matter: the server's process is watched as well.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from agent_env.sandbox.docker import leftovers
from agent_env.sandbox.owners import Owner, is_alive, reap_folders

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["clean_up", "main"]

LATE = 2.0
"""Seconds after the last find in which a container that was being made may still come up."""

LONGEST_SILENCE = 60.0
"""Seconds after which a daemon that doesn't answer is given up: the next start reaps."""

DYING = 5.0


def main(arguments: list[str]) -> None:
    owner = Owner.parse(arguments[0])
    if owner is None:
        raise SystemExit(f"{arguments[0]!r} is no owner")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    import docker

    api = docker.from_env(timeout=60, max_pool_size=leftovers.THREADS).api
    os.write(1, b"ready\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # who reads the server's log must see its end
    if _server_was_lost(owner):
        clean_up(api, owner)


def clean_up(api: APIClient, owner: Owner) -> None:
    """Remove what the owner had, until nothing is found for `LATE` seconds."""
    import docker.errors
    import requests.exceptions

    found_last = answered_last = time.monotonic()
    while True:
        now = time.monotonic()
        try:
            found = leftovers.find(api, str(owner))
            answered_last = now
            if found:
                leftovers.remove(api, found)
                found_last = time.monotonic()
            elif now - found_last > LATE:
                return
        except (docker.errors.DockerException, requests.exceptions.RequestException):
            if now - answered_last > LONGEST_SILENCE:
                return
        finally:
            reap_folders(owner)
        time.sleep(0.2)


def _server_was_lost(owner: Owner) -> bool:
    """Return once the server is gone or has said that it is done."""
    try:
        server = os.pidfd_open(owner.pid)
    except OSError:
        return True
    while is_alive(owner):
        ready, _, _ = select.select([0, server], [], [])
        if 0 in ready:
            if os.read(0, 1):
                return False
            # A process that is being killed closes its files a moment before it counts as ended.
            select.select([server], [], [], DYING)
            return not is_alive(owner)
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
