"""Which tasks are left out because no episode can play them, and where that is said."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import LeftOut, load_bundle
from tests.bundle import good

LEFT_OUT: dict[str, tuple[list[dict[str, Any]], str, str, str]] = {
    "no prompt": (good.steps()[:4], "", "", "prompts no agent"),
    "two agents": (
        [*good.steps(), {"id": "b", "type": "prompt_agent", "prompt": "x", "agent_name": "boss"}],
        "",
        "",
        "prompts 2 agents ('default-agent', 'boss')",
    ),
    "agent never deployed": ([*good.steps()[:3], *good.steps()[4:]], "", "", "'default-agent' 0 times"),
    "agent deployed twice": (
        [*good.steps()[:4], {"id": "b", "type": "deploy_agent"}, *good.steps()[4:]],
        "",
        "",
        "'default-agent' 2 times",
    ),
    "another agent": (
        [*good.steps()[:4], {"id": "b", "type": "deploy_agent", "agent_name": "boss"}, *good.steps()[4:]],
        "b",
        "deploy_agent",
        "'boss'",
    ),
    "no verifier": (good.steps()[:5], "", "", "no verifier"),
    "unknown step type": (
        [*good.steps(), {"id": "judge", "type": "rubrics_verifier", "rubrics": 3}],
        "judge",
        "rubrics_verifier",
        "'rubrics_verifier' can't be played",
    ),
    "parts": (good.change(4, prompt=..., parts=[{"kind": "text", "text": "x"}]), "ask", "prompt_agent", "parts"),
    "output_format": (good.change(4, output_format={"x": 1}), "ask", "prompt_agent", "output_format"),
    "agentenv_tools": (good.change(4, agentenv_tools=["x"]), "ask", "prompt_agent", "agentenv_tools"),
    "snapshot_config": (good.change(4, snapshot_config={"x": 1}), "ask", "prompt_agent", "snapshot_config"),
    "user simulator": (good.change(4, max_conversation_turns=3), "ask", "prompt_agent", "user simulator"),
    "retries": (
        good.change(5, retry_config={"retry_from_step_id": "env"}),
        "sold",
        "env_outcome_verifier",
        "retry_config",
    ),
    "stored state": (good.change(0, env_state_type="x"), "env", "deploy_env", "env_state_type"),
    "deploy with an artifact": (good.change(0, artifact_id="stock"), "env", "deploy_env", "artifact_id"),
    "agent snapshot": (good.change(3, enable_agent_changelog=True), "agent", "deploy_agent", "enable_agent_changelog"),
    "urls": (good.change(1, artifact_id=..., urls=[{"url": "x"}]), "seed", "load_artifact", "urls"),
    "env of a store": (good.change(0, env_id="@public/mail"), "env", "deploy_env", "env_id names @public/mail"),
    "artifact of a store": (
        good.change(5, file_artifact_id="@public/c"),
        "sold",
        "env_outcome_verifier",
        "file_artifact_id names @public/c",
    ),
    "sandbox with an image": ([{**good.BOX[0], "image": "x"}, *good.BOX[1:]], "box", "deploy_sandbox", "image"),
    "remote sandbox": ([{**good.BOX[0], "sandbox_type": "e2b"}, *good.BOX[1:]], "box", "deploy_sandbox", "'e2b'"),
    "judged criterion": (
        [*good.BOX[:4], {**good.BOX[4], "criteria": [{"type": "tidy"}]}],
        "files",
        "verify_sandbox",
        "'tidy' needs a judge",
    ),
}


def left_out(root: Path, steps: list[dict[str, Any]]) -> LeftOut:
    bundle = load_bundle(good.play(root, steps))
    assert len(bundle.splits["all"].tasks) == 0
    return bundle.left_out[0]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_an_episode_cannot_do_leaves_the_task_out_and_says_why(name: str, tmp_path: Path) -> None:
    steps, step_id, step_type, why = LEFT_OUT[name]
    task = left_out(tmp_path, steps)
    assert (task.name, task.step_id, task.step_type) == ("only", step_id, step_type)
    assert why in task.why


def test_an_env_of_another_type_leaves_out_the_tasks_that_deploy_it(folder: Path) -> None:
    shutil.copytree(folder / "envs" / "shop", folder / "envs" / "site")
    (folder / "envs" / "site" / "env.toml").write_text("type = 'website'\nurl = 'https://x.example'\n")
    (folder / "tasks" / "visit.json").write_text(json.dumps(good.change(0, env_id="site")))
    bundle = load_bundle(folder)
    assert [(task.name, task.step_id) for task in bundle.left_out] == [("visit", "env")]
    assert "of type 'website'" in bundle.left_out[0].why
    assert "site" not in bundle.envs


def test_a_left_out_task_is_dropped_from_its_evals_and_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "tasks" / "first.json").write_text(json.dumps(good.steps()[:5]))
    (folder / "evals" / "gone.toml").write_text('tasks = ["first"]')
    with caplog.at_level(logging.WARNING, "agent_env.bundle"):
        bundle = load_bundle(folder)
    assert [task.name for task in bundle.splits["some"].tasks] == ["more-2"]
    assert list(bundle.splits) == ["all", "some", "train"]
    assert "task 'first' is left out: it has no verifier step" in caplog.text
    assert "split some goes without its 1 left-out tasks" in caplog.text
    assert "split gone is not served" in caplog.text


def test_many_left_out_tasks_are_counted_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = good.play(tmp_path, good.steps())
    lines = [json.dumps({"name": f"t{n}", "steps": good.steps()[:5]}) for n in range(30)]
    (folder / "tasks" / "zz.jsonl").write_text("\n".join(lines))
    with caplog.at_level(logging.WARNING, "agent_env.bundle"):
        assert len(load_bundle(folder).left_out) == 30
    assert len(caplog.records) == 21
    assert "10 more tasks are left out" in caplog.text
