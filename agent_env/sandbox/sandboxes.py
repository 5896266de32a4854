"""`agent-env sandboxes`: what sandboxes there are on this machine, by owner, and pruning what dead owners left."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_env.sandbox.owners import Owner, OwnerState, list_folders, owner_state

__all__ = ["add_arguments", "main"]

TIMEOUT = 30.0
"""Seconds for one answer of the Docker daemon."""

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_FOLDER = "agent-env"
TMP_PREFIX = "agent-env-tmp."
"""Where the process sandbox keeps what carries its owner's name: see its `cgroups` and `tmpfolders`."""


@dataclass(frozen=True, slots=True)
class Row:
    owner: str
    state: OwnerState
    kind: str
    name: str
    detail: str = ""

    def __str__(self) -> str:
        pid = self.owner.partition("-")[0]
        return f"{pid:>8}  {self.state:<8} {self.kind:<10} {self.name}  {self.detail}".rstrip()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prune", action="store_true", help="remove what owners that are dead have left, nothing else")


def main(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 done, 1 something of a dead owner could not be removed."""
    containers, gone = _docker(arguments.prune)
    folders = _folders()
    rows = containers + folders
    if arguments.prune:
        dead = [row for row in rows if row.state == "dead"]
        gone += sum(_removed(row) for row in folders if row.state == "dead")
        _print(dead)
        print(f"removed {gone} of {len(dead)} left by owners that are dead")
        return 0 if gone >= len(dead) else 1
    _print(rows)
    print(f"{len(rows)} in all; `agent-env sandboxes --prune` removes those of owners that are dead")
    return 0


def _docker(prune: bool) -> tuple[list[Row], int]:
    """Containers and networks, and how many of them were removed. Without a daemon: none, and a note."""
    try:
        import docker
        import docker.errors
        import requests.exceptions
    except ImportError:
        print("the `docker` package is not installed: containers are not listed", file=sys.stderr)
        return [], 0
    from agent_env.sandbox.docker import leftovers

    try:
        api = docker.from_env(timeout=int(TIMEOUT)).api
        found = leftovers.find(api)
        dead = [item for item in found if item.state == "dead"]
        gone = leftovers.remove(api, dead) if prune and dead else 0
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        print(f"no Docker daemon answers ({error}): containers are not listed", file=sys.stderr)
        return [], 0
    rows = [
        Row(item.owner, item.state, item.kind, item.name, " ".join(filter(None, (item.env, item.episode, item.status))))
        for item in found
    ]
    return rows, gone


def _folders() -> list[Row]:
    """Of the Docker sandbox, and the temporary ones and cgroups of the process sandbox."""
    rows = [Row(path.name, owner_state(path.name), "folder", str(path)) for path in list_folders()]
    for path in Path(tempfile.gettempdir()).glob(f"{TMP_PREFIX}*"):
        owner = path.name.removeprefix(TMP_PREFIX)
        if Owner.parse(owner):
            rows.append(Row(owner, owner_state(owner), "folder", str(path)))
    for path, inside in _cgroups():
        rows.append(Row(path.name, owner_state(path.name), "cgroup", str(path), f"{inside} inside"))
    return rows


def _cgroups() -> Iterator[tuple[Path, int]]:
    """Each owner's, and how many envs are in it. os.walk, since live owners add and remove them meanwhile."""
    for folder, names, _ in os.walk(CGROUPS):
        path = Path(folder)
        if path.parent.name == CGROUP_FOLDER and Owner.parse(path.name):
            yield path, len(names)


def _removed(row: Row) -> bool:
    """A cgroup's files go with it, and it can't be removed while a process is in it."""
    path = Path(row.name)
    if row.kind != "cgroup":
        shutil.rmtree(path, ignore_errors=True)
    else:
        for folder in (*(child for child in path.iterdir() if child.is_dir()), path):
            try:
                folder.rmdir()
            except OSError:
                return False
    return not path.exists()


def _print(rows: Sequence[Row]) -> None:
    if rows:
        print(f"{'PID':>8}  {'OWNER':<8} {'KIND':<10} NAME")
    for row in sorted(rows, key=lambda row: (row.owner, row.kind, row.name)):
        print(row)
