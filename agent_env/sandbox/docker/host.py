"""What all containers of one sandbox share: the engine, a folder on this machine, labels, and what runs inside."""

from __future__ import annotations

import compileall
import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import agent_env
from agent_env.bundle.model import EnvSpec
from agent_env.sandbox.docker.container import Container
from agent_env.sandbox.docker.engine import Engine
from agent_env.sandbox.docker.images import Image
from agent_env.sandbox.docker.networks import Subnets
from agent_env.sandbox.docker.options import ENV_LABEL, EPISODE_LABEL, HOSTS, OWNER_LABEL, Options
from agent_env.sandbox.docker.removal import Removals
from agent_env.sandbox.interface import Limits
from agent_env.sandbox.owners import private_folder, this_owner

__all__ = ["DockerHost", "stage_sdk"]


class DockerHost:
    """`open` it before any use, `close` it in the end."""

    def __init__(self, engine: Engine, subnets: Subnets, cpus: float) -> None:
        self.engine = engine
        self.subnets = subnets
        self.removals = Removals(engine)
        self._cpus = cpus
        self._folder: Path | None = None
        self._lock: int | None = None

    def open(self) -> None:
        """Raises OSError."""
        self._folder = private_folder() / f"d{secrets.token_hex(3)}"
        self._folder.mkdir(mode=0o711)
        # Locked, systemd-tmpfiles leaves it alone, however long the server runs: see tmpfiles.d(5).
        self._lock = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        stage_sdk(self._folder / "sdk")

    def close(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # another sandbox of this process may use it
                self._folder.parent.rmdir()
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def name(self, env: EnvSpec) -> str:
        """A container's name, chosen before anything is made, so that it can be found whatever becomes of the call."""
        readable = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in env.name[:24])
        return f"agent-env-{readable}-{secrets.token_hex(6)}"

    def folder(self, name: str) -> Path:
        """Where the socket of a container of that name is. Short: a unix socket's path has at most 107 bytes."""
        assert self._folder is not None, "start() comes first"
        return self._folder / name.rpartition("-")[2][:8]

    def options(
        self,
        name: str,
        env: EnvSpec,
        image: Image,
        limits: Limits,
        *,
        episode_id: str,
        environ: Mapping[str, str] | None = None,
        entrypoint: Sequence[str] | None = None,
        network: bool = False,
        extra_processes: int = 0,
    ) -> Options:
        assert self._folder is not None, "start() comes first"
        return Options(
            name=name,
            image=image,
            limits=limits,
            cpus=min(self._cpus, float(self.engine.info.get("NCPU") or self._cpus)),
            labels={OWNER_LABEL: str(this_owner()), EPISODE_LABEL: episode_id, ENV_LABEL: env.name},
            sockets=self.folder(name),
            sdk=self._folder / "sdk",
            environ=environ or {},
            entrypoint=entrypoint,
            network=name if network else None,
            writable=env.writable,
            extra_processes=extra_processes,
        )

    async def start(self, options: Options) -> Container:
        """Raises EngineError."""
        return await Container.start(options, self.engine, self.removals, self.subnets)


def stage_sdk(target: Path) -> None:
    """Copy what containers see of us: `agent_env.env`, the verifier's child and the script that runs inside.

    A copy, so that no container sees more of this machine, nor a version that is installed later.
    """
    source = Path(agent_env.__file__).parent
    package = target / "agent_env"
    package.mkdir(parents=True)
    shutil.copytree(source / "env", package / "env", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").write_text('"""The part of agent_env that an env can use."""\n')
    shutil.copy2(source / "sandbox/process/inside/verify.py", package / "verifying.py")
    shutil.copy2(source / "sandbox/docker/inside.py", target / "inside.py")
    (target / HOSTS).write_text("127.0.0.1 localhost\n")
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask
    compileall.compile_dir(target, quiet=2)  # of use to images with this Python's version
