"""What a container of ours may do: its options for the engine, as data. Nothing here talks to a daemon.

No network (or one of its own that leads nowhere), a read-only root, a small /tmp, no capabilities, no new privileges,
the default seccomp profile, an ordinary user, limits on memory, processes, CPU and open files, and an init process
that collects orphans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_env.sandbox.docker.images import Image
from agent_env.sandbox.interface import Limits

__all__ = ["ENV_LABEL", "EPISODE_LABEL", "HOSTS", "OWNER_LABEL", "SDK_FOLDER", "SOCKET_FOLDER", "Options"]

OWNER_LABEL = "agent-env.owner"
"""The owner's string form: what a janitor, a later start and `agent-env sandboxes` go by."""
EPISODE_LABEL = "agent-env.episode"
ENV_LABEL = "agent-env.env"

SOCKET_FOLDER = "/run/agentenv"
"""Where the container sees the folder with the host's socket: read-only, so the env can't swap the socket for
anything else. Connecting needs no right to write to the folder."""
SDK_FOLDER = "/opt/agentenv"
"""Where it sees `agent_env.env` and the script that runs inside."""
HOSTS = "hosts"
"""In the folder that it sees there: its /etc/hosts."""

NOBODY = "65534:65534"


@dataclass(frozen=True, slots=True)
class Options:
    name: str
    image: Image
    limits: Limits
    cpus: float
    labels: Mapping[str, str]
    sockets: Path
    """The folder on this machine that holds the host's socket."""
    sdk: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] | None = None
    """None: the image's own ENTRYPOINT and CMD."""
    network: str | None = None
    """The name of a network; None: none at all."""
    writable: Sequence[str] = ()
    """Folders besides /tmp that it may write, absolute: each empty, of /tmp's size. Programs in them may be run."""
    extra_processes: int = 0
    """On top of the limit: what our own script inside needs."""

    @property
    def user(self) -> str:
        """The image's own user, but never root."""
        name = self.image.user.partition(":")[0]
        return NOBODY if name in ("", "root") or (name.isdecimal() and int(name) == 0) else self.image.user

    def environment(self) -> dict[str, str]:
        """HOME is writable, though the image's root is not; Python's output is there even if it is killed; what the
        image sets itself stays."""
        paths = [SDK_FOLDER, *filter(None, [self.image.environ.get("PYTHONPATH")])]
        ours = {"HOME": "/tmp", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        return {**ours, **self.environ, "PYTHONPATH": ":".join(paths)}

    def tmpfs(self) -> dict[str, str]:
        options = f"nosuid,nodev,size={self.limits.tmp_mib}m,mode=1777"
        folders = dict.fromkeys(self.writable, f"rw,exec,{options}")
        return {**folders, "/tmp": f"rw,noexec,{options}"}

    def mounts(self) -> dict[str, Path]:
        """What is mounted into it, read-only: where, and which file or folder of this machine."""
        # An engine writes /etc/hosts only where it makes a network.
        hosts = {} if self.network else {"/etc/hosts": self.sdk / HOSTS}
        return {SOCKET_FOLDER: self.sockets, SDK_FOLDER: self.sdk, **hosts}

    def ulimits(self) -> dict[str, tuple[int, int]]:
        """Soft and hard. Of processes no rlimit: it counts over every container of the same uid; the cgroup's limit
        counts per container. The high number is there because Podman would set one that it may not set."""
        files, seconds = self.limits.open_files, self.limits.cpu_seconds
        # The hard limit kills; the soft one's signal is sent a second before.
        return {"nofile": (files, files), "nproc": (30000, 30000), "cpu": (seconds, seconds + 1), "core": (0, 0)}
