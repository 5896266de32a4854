"""What a sandbox is: the interface that the process tiers and Docker share, its data and its errors.

Three things can go wrong below an episode, and callers must tell them apart:
- `DeployFailed`: an env did not come up. Nothing of it is left. The episode may be tried again.
- `EnvLost`: an env that was up is gone, or can't be reached. What it held is lost.
- `VerifierFailed`: the verifier raised, timed out or answered nonsense. The env is untouched; the episode is unscored.

None of them is ever the policy's doing, so none may turn into a reward. A message names the env and what to do, and
ends with the tail of what the process printed.
"""

from __future__ import annotations

import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent_env.bundle.model import EnvSpec

__all__ = [
    "DeployFailed",
    "EnvInstance",
    "EnvLost",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxUnavailable",
    "Tier",
    "Verification",
    "VerifierFailed",
    "disk_full",
]


class SandboxError(Exception):
    """Base: the infrastructure failed, not the policy."""

    disk_full = False
    """A disk of the host, or of its container engine, is full. Ask `disk_full`: it may be so of this error's cause."""


class SandboxUnavailable(SandboxError):
    """This sandbox can't run here at all (no namespaces, no Docker daemon, ...). Says what to install or choose."""


class DeployFailed(SandboxError):
    """An env did not come up in time or ended while starting; nothing of it is left."""


class EnvLost(SandboxError):
    """An env that was up has ended or can't be reached any more."""


class VerifierFailed(SandboxError):
    """The verifier raised, missed its deadline or returned something that isn't rows."""


def disk_full(error: BaseException | None) -> bool:
    """Whether an error comes of a full disk: it, or one that it was raised from, says so."""
    while error is not None:
        if isinstance(error, SandboxError) and error.disk_full:
            return True
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__
    return False


@dataclass(frozen=True, slots=True)
class Limits:
    """What one env (or verifier) may use. Enforced by rlimits always, by cgroups too where they can be written."""

    memory_mib: int = 1024
    processes: int = 128
    cpu_seconds: int = 3600
    """CPU time of any one process."""
    tmp_mib: int = 64
    """Size of its private /tmp."""
    open_files: int = 256
    output_kib: int = 64
    """How much of the end of what it prints is kept."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Which isolation is active: shown by the log, `/status` and `agent-env doctor`."""

    name: str
    """`namespaces`, `landlock`, `docker` or `unconfined`."""
    gives: tuple[str, ...]
    lacks: tuple[str, ...]
    """What a reader might expect of it and does not get, in words."""


class EnvInstance(ABC):
    """One running env, for exactly one episode. Its owner calls `kill()` in a `finally`."""

    env: EnvSpec
    id: str
    """Unique; in process titles, container labels and logs."""

    @property
    def introduction(self) -> bytes:
        """What its server told of itself when it came up (see `agent_env.env.server`), untrusted; b"" for nothing."""
        return b""

    @abstractmethod
    async def connect(self) -> socket.socket:
        """A new connection to the env's HTTP server: a connected, non-blocking stream socket that the caller closes.

        Any number may be open at once. Raises EnvLost if the env has ended.
        """

    @abstractmethod
    async def wait(self) -> str:
        """Return when the env has ended, with why in words (`exit status 1`, `killed: out of memory (1024 MiB)`)."""

    @property
    @abstractmethod
    def output(self) -> str:
        """The end of what it has printed so far, at most `Limits.output_kib`."""

    @abstractmethod
    async def kill(self) -> None:
        """End every process of the env and remove all it had; returns when that's done. Idempotent, bounded in time,
        never raises for an env that is gone already."""


@dataclass(frozen=True, slots=True)
class Verification:
    """A verifier's code and what it may see."""

    code: str
    """Source of one Python file that defines `async def verify(mcp_url)` or `verify(mcp_url, run=...)`."""
    filename: str
    """For tracebacks: the path inside the bundle."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """JSON: {"turns": [{"prompt_id", "message": {"text"}, "reply": {"text"}}]}; what `run=` is made from."""
    mcp_path: str = "/mcp"
    """Where the env serves MCP, from its card."""
    timeout: float = 60.0
    """Seconds for the whole of it."""


class Sandbox(ABC):
    """Where envs and verifiers run. A server owns one; `start` and `close` frame its use.

    Every method is safe to cancel at any point: what it had begun to make is gone when the cancellation is through.
    Nothing here blocks the event loop.
    """

    tier: Tier

    @property
    def problem(self) -> str | None:
        """What keeps this host from deploying envs at the moment, in a line; None if nothing is known to."""
        return None

    @abstractmethod
    async def start(self) -> None:
        """Check that it can run here, and reap what dead owners left. Raises SandboxUnavailable."""

    @abstractmethod
    async def prepare(self, env: EnvSpec) -> None:
        """Make ready what all deploys of this env share (virtual environment, image, fork server). May take minutes
        the first time; at once afterwards; concurrent calls share the work. Raises DeployFailed."""

    @abstractmethod
    async def deploy(self, env: EnvSpec, *, episode_id: str) -> EnvInstance:
        """Start a fresh env and return once its server accepts connections; prepares it first if need be.

        The caller bounds the time by cancelling. Raises DeployFailed.
        """

    @abstractmethod
    async def verify(
        self, env: EnvSpec, verification: Verification, connect: Callable[[], Awaitable[socket.socket]]
    ) -> list[dict[str, Any]]:
        """Run a verifier in a sandbox of its own, under the env's Python, and return its rows as it gave them (JSON).

        It reaches `connect` (its episode's env, at `mcp_url`) and nothing else. Raises VerifierFailed.
        """

    @abstractmethod
    async def close(self) -> None:
        """End everything this sandbox made, in parallel and in bounded time. Idempotent."""
