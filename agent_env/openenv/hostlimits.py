"""What the host must allow before a server starts: file descriptors, and one process."""

from __future__ import annotations

import logging
import multiprocessing
import resource

__all__ = ["check_descriptors", "raise_descriptors", "warn_of_workers"]

_log = logging.getLogger(__name__)

_AT_REST = 48
_PER_ENV = 4
"""At least: the client's socket, a connection to the env, a handle on its process, and what it prints."""


def descriptors_needed(max_concurrent_envs: int) -> int:
    """A lower bound on open files with that many live envs."""
    return _AT_REST + _PER_ENV * max_concurrent_envs


def check_descriptors(max_concurrent_envs: int) -> None:
    """Raises ValueError if this process can't open as many files as that many envs need."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = descriptors_needed(max_concurrent_envs)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ValueError(
            f"max_concurrent_envs={max_concurrent_envs} needs about {needed} open files, and this process may have "
            f"{hard}: raise the limit (ulimit -n {needed}, systemd's LimitNOFILE, Docker's --ulimit nofile={needed}) "
            f"or lower max_concurrent_envs to {max(1, (hard - _AT_REST) // _PER_ENV)}"
        )


def raise_descriptors() -> None:
    """Raise this process's soft limit of open files to the hard one, as servers do: the usual 1,024 is for
    programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _log.info("limit of open files raised from %s to %s", soft, hard)


def warn_of_workers(max_concurrent_envs: int) -> None:
    """Say what several workers of one server mean, if this process looks like one of them."""
    if multiprocessing.parent_process() is not None:
        _log.warning(
            "this server runs in a worker process: max_concurrent_envs=%d, the queue and HTTP sessions count for each "
            "worker alone. Run one worker a host; for more, run more servers",
            max_concurrent_envs,
        )
