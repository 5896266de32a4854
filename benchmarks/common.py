"""What the benchmarks share: servers as processes, virtual environments with others' packages, statistics, tables."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import platform
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_env.bundle.model import EnvSpec

__all__ = [
    "FRAMEWORK",
    "GRIDSIM",
    "OFFICIAL",
    "ROOT",
    "SERVERS",
    "add_json",
    "finish",
    "machine",
    "many_files",
    "median",
    "on_image",
    "ours",
    "peer_python",
    "percentile",
    "processes",
    "pss_mib",
    "served",
    "table",
]

ROOT = Path(__file__).resolve().parents[1]
GRIDSIM = ROOT / "bundles" / "gridsim-v1"
OFFICIAL = "openenv==0.10.0"
FRAMEWORK = "agentenv-framework[openenv]==0.9.1364"
SERVERS = Path(__file__).parent / "servers"
START_SECONDS = 120


def peer_python(*requirements: str) -> Path:
    """A Python that has these, in a virtual environment that is built once: in $AGENT_ENV_PEERS_CACHE, or
    ~/.cache/agent-env-peers, where the tests look too. Raises CalledProcessError if they can't be installed."""
    cache = Path(os.environ.get("AGENT_ENV_PEERS_CACHE") or Path.home() / ".cache" / "agent-env-peers")
    cache.mkdir(parents=True, exist_ok=True)
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    folder = cache / "-".join([version, *(one.replace("==", "-") for one in requirements)])
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            print(f"installing {', '.join(requirements)} into {folder}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", *requirements], check=True)
            (folder / "ready").touch()
    return folder / "bin" / "python"


def ours(sessions: int, bundle: Path = GRIDSIM) -> list[str]:
    """The command of our server; {port} is filled in by `served`."""
    options = ["--port", "{port}", "--max-concurrent-envs", str(sessions), "--log-level", "error"]
    return [sys.executable, "-m", "agent_env.cli", "serve", str(bundle), *options]


def theirs(name: str, sessions: int) -> list[str]:
    """The command of `official` or `framework`."""
    python = peer_python({"official": OFFICIAL, "framework": FRAMEWORK}[name])
    return [str(python), str(SERVERS / f"{name}.py"), "{port}", str(sessions)]


@contextlib.contextmanager
def served(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """A server as a process, once GET /health answers: its URL and process id. Ends it and all that it started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    filled = [word.replace("{port}", str(port)) for word in command]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # or the server would stay
    log = tempfile.TemporaryFile()  # noqa: SIM115 (the others log every episode)
    process = subprocess.Popen(filled, cwd="/", stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise RuntimeError(f"{' '.join(filled)}: {log.read()[-2000:].decode()}") from None
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        log.close()


def on_image(env: EnvSpec, image: str, folder: Path) -> EnvSpec:
    """The same env, its container's image made FROM one that has Python: its own Dockerfile asks a registry. `folder`,
    which is empty, holds what it is built of."""
    shutil.copytree(env.folder, folder, dirs_exist_ok=True)
    command = json.dumps(["python3", *env.command[1:]])
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text(f"FROM {image}\nWORKDIR /app\nCOPY . .\nCMD {command}\n")
    digest = hashlib.sha256(f"{env.digest} {image}".encode()).hexdigest()
    return dataclasses.replace(env, folder=folder, dockerfile=dockerfile, digest=digest)


def many_files() -> None:
    """Let this process, which drives the load, have a socket for every session."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def machine() -> dict[str, Any]:
    """Where and when a figure was taken."""
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(total.split()[1]) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def processes(root: int) -> list[int]:
    """Every process below `root`."""
    found, stack = [], [root]
    while stack:
        try:
            texts = [file.read_text() for file in Path(f"/proc/{stack.pop()}/task").glob("*/children")]
        except OSError:
            continue
        children = [int(word) for text in texts for word in text.split()]
        found += children
        stack += children
    return found


def pss_mib(pids: Sequence[int]) -> float:
    """What these processes hold together, shared pages divided among those that share them."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def available_mib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 1024


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of equal keys as aligned columns; numbers to the right."""
    if not rows:
        return "(nothing)"
    names = list(rows[0])
    cells = [names, *([_cell(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[place]) for line in cells) for place in range(len(names))]
    right = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in names]
    lines = [
        "  ".join(
            text.rjust(width) if to_right else text.ljust(width) for text, width, to_right in zip(*line, strict=True)
        )
        for line in ([cells[0], widths, right], *([line, widths, right] for line in cells[1:]))
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return "-" if value is None else str(value)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result there, too")


def finish(result: dict[str, Any], rows: Sequence[Mapping[str, Any]], path: Path | None) -> None:
    """Print where it ran and the table; write the JSON if asked to."""
    about = result["machine"]
    print(f"{about['date']}, {about['cores']} cores, {about['memory_gib']} GiB, load {about['load_before']} before")
    print(table(rows))
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n")
