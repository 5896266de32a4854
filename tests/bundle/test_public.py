"""The public framework's own examples, as its wheel ships them: read unchanged, and playable with an agent added.

The wheel is downloaded and unpacked, never installed: its package has our name.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent_env.bundle import load_bundle

pytestmark = pytest.mark.peers

WHEEL = "agentenv-framework==0.9.1364"
TURN = [
    {"id": "agent", "type": "deploy_agent"},
    {"id": "ask", "type": "prompt_agent", "prompt": "Do it.", "system_prompt": "You do."},
]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), WHEEL]
    subprocess.run(command, check=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("agent_env/examples/")])
    return folder / "agent_env" / "examples"


@pytest.mark.parametrize(("name", "task"), [("hello", "hello"), ("echo-mcp", "smoke"), ("mail-mcp", "smoke")])
def test_an_example_is_read_and_its_task_left_out_for_want_of_a_prompt(name: str, task: str, examples: Path) -> None:
    bundle = load_bundle(examples / name)
    assert bundle.name == name
    assert bundle.description
    assert [(each.name, each.step_id) for each in bundle.left_out] == [(task, "")]
    assert "prompts no agent" in bundle.left_out[0].why


@pytest.mark.parametrize(("name", "env"), [("echo-mcp", "echo"), ("mail-mcp", "mail")])
def test_an_examples_env_needs_no_docker(name: str, env: str, examples: Path) -> None:
    spec = load_bundle(examples / name).envs[env]
    assert spec.needs_docker is None
    assert (spec.command, spec.workdir, spec.python) == (("python", "server.py"), "/app", "3.11")
    assert spec.environment_name == env
    assert spec.requirements is not None


@pytest.mark.parametrize(
    ("name", "score"), [("hello", "hello"), ("echo-mcp", "echoes"), ("mail-mcp", "finds-the-invoice")]
)
def test_an_example_with_an_agent_is_playable(name: str, score: str, examples: Path, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(examples / name, folder)
    (file,) = (folder / "tasks").iterdir()
    *setup, verifier = json.loads(file.read_text())
    deploy, ask = TURN
    envs = [step["env_id"] for step in setup if step["type"] == "deploy_env"]
    boxes = [step["sandbox_name"] for step in setup if step["type"] == "deploy_sandbox"]
    deploy = {**deploy, "env_ids": envs, "sandbox_name": boxes[0] if boxes else None}
    file.write_text(json.dumps([*setup, deploy, ask, verifier]))
    bundle = load_bundle(folder)
    task = bundle.splits["all"].tasks[0]
    assert not bundle.left_out
    assert (task.scores, task.reward_step) == ((score,), score)
    assert task.turns[0].env_ids == tuple(envs)
    assert task.agent_sandbox == ("box" if name == "hello" else None)
