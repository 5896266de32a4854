"""The training script: it parses, and what it names exists."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "miles_gridsim.sh"


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_bash_parses_it() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True, timeout=30)


def paths_of_ours() -> dict[str, str]:
    """Flag -> dotted path, of the flags that name code of this project."""
    found = re.findall(r"^ +(--[a-z-]+-path) ([\w.]+)", SCRIPT.read_text(), re.MULTILINE)
    return {flag: path for flag, path in found if not path.startswith("miles.")}


def test_every_hook_is_named() -> None:
    assert paths_of_ours() == {
        "--custom-agent-function-path": "agent_env.training.miles.agent.run",
        "--custom-rm-path": "agent_env.training.miles.agent.reward",
        "--dynamic-sampling-filter-path": "filters.keep_and_count",
        "--custom-rollout-log-function-path": "miles_metrics.log_rollout",
        "--custom-eval-rollout-log-function-path": "miles_metrics.log_eval_rollout",
    }


@pytest.mark.parametrize("flag", sorted(paths_of_ours()))
def test_the_code_that_a_flag_names_is_there_and_of_the_kind_that_miles_calls(flag: str) -> None:
    module, _, name = paths_of_ours()[flag].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    assert inspect.iscoroutinefunction(function) == (flag in {"--custom-agent-function-path", "--custom-rm-path"})


RAY = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["LOG"], "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
"""


def test_it_starts_ray_submits_the_job_and_stops_ray(tmp_path: Path) -> None:
    for folder in ("bin", "model", "data"):
        (tmp_path / folder).mkdir()
    ray = tmp_path / "bin" / "ray"
    ray.write_text(RAY)
    ray.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "LOG": str(tmp_path / "log"),
        "MODEL": "model",
        "GPUS": "2",
        "MILES_HOME": "/opt/miles",
    }
    subprocess.run(["bash", SCRIPT, "--use-wandb"], cwd=tmp_path, env=environment, check=True, timeout=30)
    before, start, job, after = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert before == after == ["stop", "--force"]
    assert start == [
        *("start", "--head", "--node-ip-address", "127.0.0.1"),
        *("--num-gpus", "2", "--disable-usage-stats"),
    ]
    options, train = job[: job.index("--")], job[job.index("--") + 1 :]
    runtime = json.loads(next(word for word in options if word.startswith("--runtime-env-json=")).partition("=")[2])
    assert str(EXAMPLES) in runtime["env_vars"]["PYTHONPATH"].split(":")
    assert train[:2] == ["python3", "/opt/miles/train.py"]
    assert train[-1] == "--use-wandb"
    for flag, value in {
        "--hf-checkpoint": str(tmp_path / "model"),
        "--prompt-data": str(tmp_path / "data" / "train.jsonl"),
        "--apply-chat-template-kwargs": '{"enable_thinking": false}',
        "--actor-num-gpus-per-node": "2",
    }.items():
        assert train[train.index(flag) + 1] == value
    at = train.index("--eval-prompt-data")
    assert train[at + 1 : at + 3] == ["eval", str(tmp_path / "data" / "eval.jsonl")]
    assert "--apply-chat-template" not in train
    assert len(set(flags := [word for word in train if word.startswith("--")])) == len(flags), "no flag twice"
