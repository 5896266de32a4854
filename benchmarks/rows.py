"""Reading, serving and writing rows of bundles of 200, 2,000 and 20,000 tasks: seconds and memory.

    python benchmarks/rows.py

The bundles are GridSim's env with its train tasks, again and again under new names.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import GRIDSIM, add_json, finish, machine, ours, pss_mib, served


def bundle(folder: Path, tasks: int) -> Path:
    shutil.copytree(GRIDSIM, folder, ignore=shutil.ignore_patterns("tasks", "evals", "__pycache__"))
    (folder / "tasks").mkdir()
    lines = (GRIDSIM / "tasks" / "train.jsonl").read_text().splitlines()
    with open(folder / "tasks" / "train.jsonl", "w") as file:
        for number in range(tasks):
            task = json.loads(lines[number % len(lines)])
            file.write(json.dumps(task | {"name": f"train-{number:06d}"}) + "\n")
    return folder


def write(url: str, folder: Path) -> tuple[float, float]:
    """Seconds, and the writer's peak memory in MiB."""
    begun, peak = time.perf_counter(), 0.0
    command = [sys.executable, "-m", "agent_env.training.miles", url, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:  # not ru_maxrss, which has this process' own memory from before the exec in it
        peak = max(peak, peak_mib(process.pid))
        time.sleep(0.01)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - begun, peak


def peak_mib(pid: int) -> float:
    """0 once it is ending."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def run(counts: list[int]) -> list[dict[str, Any]]:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            place = bundle(Path(folder) / f"tasks-{count}", count)
            begun = time.perf_counter()
            with served(ours(8, place)) as (url, pid):
                start = time.perf_counter() - begun
                seconds, peak = write(url, Path(folder) / f"rows-{count}")
                server = pss_mib([pid])
            rows.append(
                {
                    "tasks": count,
                    "server start s": round(start, 2),
                    "server MiB": round(server, 1),
                    "write s": round(seconds, 2),
                    "ms a row": round(1000 * seconds / count, 3),
                    "writer peak MiB": round(peak, 1),
                    "file MiB": round((Path(folder) / f"rows-{count}" / "all.jsonl").stat().st_size / 2**20, 1),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", type=int, default=[200, 2000, 20000], metavar="N")
    add_json(parser)
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine()}
    result["rows"] = run(options.tasks)
    finish(result, result["rows"], options.json)


if __name__ == "__main__":
    main()
