"""What the server tells a fork server at its start and a child at its own: plain data, JSON on the control socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Settings", "Spawn"]


@dataclass(frozen=True, slots=True)
class Settings:
    """One fork server's: what its children see, and what they run."""

    tier: str
    """`namespaces`, `landlock` or `unconfined`."""
    binds: tuple[tuple[str, str], ...] = ()
    """(source on this machine, path in the sandbox): folders and files, read-only there. Parents come first."""
    links: tuple[tuple[str, str], ...] = ()
    """(path in the sandbox, what the symbolic link there says)."""
    folders: tuple[str, ...] = ()
    """Made in each child's private /tmp: what links lead to."""
    uid: int = 65534
    """Whom a root server's envs are to the kernel."""
    environ: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """Put in front of sys.path."""
    cwd: str = "/tmp"
    command: tuple[str, ...] = ()
    """What starts the env, its interpreter's path resolved; empty for a verifier's."""
    script: str | None = None
    """The Python file that `command` runs: then a fork can run it. None: `command` must be exec'd."""
    argv: tuple[str, ...] = ()
    """The script's sys.argv."""
    own: tuple[str, ...] = ()
    """The env's folder, by each of its paths: modules from there are never loaded into the fork server."""
    port: int = 18765
    """What a server that binds a port binds, on its own loopback."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """One child's."""

    role: str
    """`env`, `rehearsal` (asked what it imported) or `verifier`."""
    plain: bool
    """Start by exec: a fresh interpreter, nothing shared."""
    tcp: bool
    """Pass sockets of its network namespace out, since its server binds a port."""
    name: str
    memory: int
    """Bytes, as `file_size` and `tmp_size`."""
    processes: int
    cpu_seconds: int
    open_files: int
    file_size: int
    tmp_size: int
    environ: dict[str, str] = field(default_factory=dict)
    tmp: str = ""
    """Tiers without a mount namespace: the folder that it may write."""
    relay_port: int = 0
    """A verifier without a network namespace: the only port that it may connect to."""

    @classmethod
    def parse(cls, data: dict[str, Any]) -> Spawn:
        return cls(**data)
