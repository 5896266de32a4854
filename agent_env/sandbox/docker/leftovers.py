"""What there is of ours on an engine, by owner; and its removal once the owner is dead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from agent_env.sandbox.docker.options import ENV_LABEL, EPISODE_LABEL, OWNER_LABEL
from agent_env.sandbox.docker.processes import kill_processes
from agent_env.sandbox.docker.removal import remove_container
from agent_env.sandbox.owners import OwnerState, owner_state

if TYPE_CHECKING:
    from docker import APIClient

__all__ = ["Leftover", "find", "remove"]

THREADS = 8
"""Removals at a time. A removal takes the engine's own CPU time, about 40 ms a container (Docker 20.10), most of it for
two runs of runc and one of its shim at the container's end, whoever brings that about. So with 64 containers on 2
cores, 2, 4 or 16 threads made no difference, nor did removal by the engine itself (AutoRemove)."""


@dataclass(frozen=True, slots=True)
class Leftover:
    kind: Literal["container", "network"]
    id: str
    name: str
    owner: str
    state: OwnerState
    env: str = ""
    episode: str = ""
    status: str = ""
    """The engine's words for a container: `Up 3 minutes`."""


def find(api: APIClient, owner: str | None = None) -> list[Leftover]:
    """Everything with our owner label, or with this owner's. Blocking; raises the SDK's errors.

    Containers come before networks: a network can't be removed while a container is in it.
    """
    label = OWNER_LABEL if owner is None else f"{OWNER_LABEL}={owner}"
    found: list[Leftover] = []
    for container in api.containers(all=True, filters={"label": label}):
        labels = container.get("Labels") or {}
        name = (container.get("Names") or ["/?"])[0].lstrip("/")
        found.append(
            Leftover(
                "container",
                container["Id"],
                name,
                labels[OWNER_LABEL],
                owner_state(labels[OWNER_LABEL]),
                labels.get(ENV_LABEL, ""),
                labels.get(EPISODE_LABEL, ""),
                container.get("Status", ""),
            )
        )
    for network in api.networks(filters={"label": label}):
        holder = (network.get("Labels") or {})[OWNER_LABEL]
        found.append(Leftover("network", network["Id"], network["Name"], holder, owner_state(holder)))
    return found


def remove(api: APIClient, leftovers: list[Leftover]) -> int:
    """Remove these, several at a time; returns how many are gone. Blocking. What can't be removed now is left.

    Their processes end first, all at once: an env that lost its server has no business to go on.
    """
    kill_processes({item.id for item in leftovers if item.kind == "container"})
    with ThreadPoolExecutor(THREADS) as threads:
        containers = [item for item in leftovers if item.kind == "container"]
        networks = [item for item in leftovers if item.kind == "network"]
        gone = sum(threads.map(lambda item: _gone(api, item), containers))
        return gone + sum(threads.map(lambda item: _gone(api, item), networks))


def _gone(api: APIClient, item: Leftover) -> bool:
    import docker.errors

    try:
        if item.kind == "container":
            remove_container(api, item.id)
        else:
            api.remove_network(item.id)
    except docker.errors.NotFound:
        return True
    except docker.errors.DockerException:
        return False
    return True
