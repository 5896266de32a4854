"""Import times and installed sizes of ours, of the official OpenEnv package and of agentenv-framework.

    python benchmarks/footprint.py              # builds what it measures, once: minutes the first time

Sizes are of site-packages, without pip and setuptools; import times of a fresh interpreter, its own start taken off.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import FRAMEWORK, OFFICIAL, ROOT, add_json, finish, machine, median, peer_python

SERVER = "from agent_env.openenv import build_app"
AGENT = "import agent_env.training.miles.agent"
NOT_COUNTED = ("pip", "setuptools", "_distutils_hack", "pkg_resources")


def import_seconds(python: str | Path, statement: str, rounds: int) -> float:
    """Median; in turns with an empty program, whose time is taken off."""
    times, empty = [], []
    for _ in range(rounds + 1):
        for code, into in ((statement, times), ("pass", empty)):
            begun = time.perf_counter()
            subprocess.run([python, "-c", code], check=True, cwd="/", stderr=subprocess.DEVNULL)
            into.append(time.perf_counter() - begun)
    return median(times[1:]) - median(empty[1:])  # the first is cold


def size_mib(folder: Path) -> float:
    total = 0
    for entry in folder.iterdir():
        if not entry.name.startswith(NOT_COUNTED):
            files = [entry] if entry.is_file() else entry.rglob("*")
            total += sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
    return total / 2**20


def installed(extra: str) -> float:
    """Our package with an extra, into an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, f"{ROOT}[{extra}]"]
        subprocess.run(pip, check=True)
        return size_mib(Path(folder))


def packages_of(python: Path) -> Path:
    [found] = python.parents[1].glob("lib/python3*/site-packages")
    return found


def run(rounds: int) -> list[dict[str, Any]]:
    official, framework = peer_python(OFFICIAL), peer_python(FRAMEWORK)
    ours = sys.executable
    create = "from openenv.core.env_server import create_app"
    return [
        {"what": "ours: server", "import s": import_seconds(ours, SERVER, rounds), "MiB": installed("openenv")},
        {"what": "ours: agent function", "import s": import_seconds(ours, AGENT, rounds), "MiB": installed("miles")},
        {
            "what": "official server",
            "import s": import_seconds(official, create, rounds),
            "MiB": size_mib(packages_of(official)),
        },
        {
            "what": "agentenv-framework",
            "import s": import_seconds(framework, SERVER, rounds),
            "MiB": size_mib(packages_of(framework)),
        },
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="imports of each, of which the median is taken")
    add_json(parser)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.rounds)
    finish(result, result["rows"], options.json)


if __name__ == "__main__":
    main()
