"""A bundle of 20,000 tasks loads within its bounds of time and memory, measured in a process of its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundle import good

pytestmark = pytest.mark.soak

TASKS = 20_000

MEASURE = """
import resource, sys, time
from agent_env.bundle import check_reward, resolve_bundles
started = time.process_time()
served = resolve_bundles(sys.argv[1])
check_reward(served, None)
loaded = time.process_time() - started
tasks = served.splits["all"].tasks
assert sum(1 for task in tasks if task.turns) == len(tasks) == int(sys.argv[2])
print(loaded, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def test_a_bundle_of_20000_tasks_loads_in_10_seconds_and_300_mib(tmp_path: Path) -> None:
    folder = good.make(tmp_path)
    draw = random.Random(1)
    with (folder / "tasks" / "zz.jsonl").open("w") as file:
        for number in range(TASKS - 4):
            prices = [draw.randint(1000, 9999) for _ in range(24)]
            prompt = f"Sell at {prices}. " + " ".join(draw.choice("abcdefgh") * 6 for _ in range(200))
            file.write(json.dumps({"name": f"day-{number}", "steps": good.steps(prompt=prompt)}) + "\n")
    (folder / "evals" / "every.toml").write_text('tasks = ["zz"]')
    command = [sys.executable, "-c", MEASURE, str(folder), str(TASKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    seconds, mebibytes = map(float, done.stdout.split())
    print(f"{TASKS} tasks: {seconds:.1f} s, {mebibytes:.0f} MiB")
    assert seconds < 10
    assert mebibytes < 300
