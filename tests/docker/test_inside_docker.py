"""agent_env itself inside a plain container: what a cluster or a CI service gives most people.

Docker's default profile refuses new namespaces there, also to root, and lets Landlock through.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox.process.inside.landlock import abi
from tests.bundles.gridsim import baselines, rules

from .conftest import IMAGE

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(300),
    pytest.mark.skipif(abi() < 4, reason="the landlock tier needs Linux 6.7"),
]

ROOT = Path(__file__).parents[2]
DAY = baselines.days("eval")[0]


@pytest.mark.parametrize("user", ["0", "1000"])
def test_episodes_play_to_their_exact_scores_behind_landlock_in_a_default_docker_run(engine: Any, user: str) -> None:
    _, best = rules.optimum(DAY)
    name = f"agent-env-test-{secrets.token_hex(6)}"
    site = sysconfig.get_path("purelib")
    options = ["--rm", "--name", name, "--user", user, "-v", f"{ROOT}:/src:ro", "-v", f"{site}:/site:ro"]
    environ = ["-e", "PYTHONPATH=/src:/site", "-e", "PYTHONDONTWRITEBYTECODE=1"]
    command = ["python3", "/src/tests/docker/play_inside.py", "/src/bundles/gridsim-v1"]
    schedules = [json.dumps(best), json.dumps([0] * 24), json.dumps([-1] * 24)]
    try:
        done = subprocess.run(
            ["docker", "run", *options, *environ, IMAGE, *command, *schedules],
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    except subprocess.TimeoutExpired:
        engine.remove_container(name, force=True)
        raise
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"tier": "landlock", "refused": ["namespaces"], "rewards": [1.0, 0.2, 0.0]}
