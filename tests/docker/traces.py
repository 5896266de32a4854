"""What the containers of one server have on this machine, so that it can be told when nothing of it is left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors

from agent_env.sandbox.docker.options import OWNER_LABEL
from agent_env.sandbox.owners import list_folders

__all__ = ["Traces", "left", "running", "with_descendants"]

CGROUPS = Path("/sys/fs/cgroup")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def left(engine: Any, owner: str) -> list[str]:
    """Names of what the engine and the folder of sockets hold of a server."""
    filters = {"label": f"{OWNER_LABEL}={owner}"}
    containers = [found["Names"][0] for found in engine.containers(all=True, filters=filters)]
    networks = [found["Name"] for found in engine.networks(filters=filters)]
    folders = [str(path) for path in list_folders() if path.name == owner]
    return containers + networks + folders


@dataclass(frozen=True)
class Traces:
    """Taken while the server lives. What comes up afterwards has the server's label all the same: see `left`."""

    owner: str
    containers: frozenset[str]
    """Ids."""
    processes: frozenset[int]
    """Their first processes and all below these, the orphans among them."""
    layers: frozenset[str]
    """Folders that are mounted for them."""

    @classmethod
    def of(cls, engine: Any, owner: str) -> Traces:
        containers, processes, layers = set(), set(), set()
        for listed in engine.containers(filters={"label": f"{OWNER_LABEL}={owner}"}):
            try:
                found = engine.inspect_container(listed["Id"])
            except docker.errors.NotFound:
                continue  # it was ended since
            containers.add(found["Id"])
            processes |= with_descendants(found["State"]["Pid"])
            layers.add((found["GraphDriver"]["Data"] or {}).get("MergedDir", found["Id"]))
        return cls(owner, frozenset(containers), frozenset(processes), frozenset(layers))

    def processes_left(self) -> list[str]:
        return [f"process {pid}" for pid in self.processes if running(pid)]

    def kernel_left(self) -> list[str]:
        """Mounts, cgroups and sockets."""
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        mounted = (line.split()[4] for line in mounts)
        found = [f"mount {path}" for path in mounted if path in self.layers or self.containers & set(path.split("/"))]
        for folder, names, _ in os.walk(CGROUPS):
            found += [f"cgroup {folder}/{name}" for name in self.containers.intersection(names)]
        sockets = Path("/proc/net/unix").read_text().splitlines()
        return found + [f"socket {line.split()[-1]}" for line in sockets if f"/{self.owner}/" in line]

    def left(self, engine: Any) -> list[str]:
        """What is left of the first kind of which something is; looking costs the engine little while it is busy."""
        return self.processes_left() or left(engine, self.owner) or self.kernel_left()


def with_descendants(root: int) -> set[int]:
    """The processes below it, and itself."""
    found, stack = {root} - {0}, [root]
    while stack:
        for file in Path(f"/proc/{stack.pop()}/task").glob("*/children"):
            try:
                children = {int(word) for word in file.read_text().split()}
            except OSError:
                continue
            stack += children - found
            found |= children
    return found
