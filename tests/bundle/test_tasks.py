"""What the steps of one task are read as: order, turns, scores, tools and sandboxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import Task, load_bundle
from agent_env.bundle.steps import EnvOutcomeVerifier, LoadArtifact, PromptAgent
from tests.bundle import good


def one(root: Path, steps: list[dict[str, Any]]) -> Task:
    """The only task of a bundle with these steps."""
    bundle = load_bundle(good.play(root, steps))
    assert not bundle.left_out
    return bundle.splits["all"].tasks[0]


def test_a_task_has_its_plan(folder: Path) -> None:
    task = load_bundle(folder).splits["some"].tasks[0]
    assert (task.id, task.name) == ("@local/shop-v1/more-2", "more-2")
    assert [step.id for step in task.steps] == ["env", "seed", "day", "agent", "ask", "sold"]
    assert task.agent_name == "default-agent"
    assert task.env_ids == ("shop",)
    assert (task.scores, task.reward_step) == (("sold",), "sold")
    turn = task.turns[0]
    assert (turn.step_id, turn.prompt, turn.system_prompt, turn.env_ids) == ("ask", "Sell 2.", "You sell.", ("shop",))
    assert task.replayable


def test_steps_are_typed_and_frozen(folder: Path) -> None:
    task = load_bundle(folder).splits["all"].tasks[0]
    seed, ask = task.steps[1], task.steps[4]
    assert isinstance(seed, LoadArtifact)
    assert [artifact.id for artifact in seed.artifacts] == ["stock"]
    assert isinstance(ask, PromptAgent)
    with pytest.raises(ValueError, match="frozen"):
        ask.prompt = "x"  # type: ignore[misc]


def test_fields_that_the_format_ignores_are_ignored(tmp_path: Path) -> None:
    steps = good.steps(model="x", model_params={"temperature": 1}, timeout_seconds=5, max_turns=9, surprise=[1])
    steps[0].update(sandbox_type="local", ttl_seconds=7200, cpu=2, version=3, gateway_mode="performance")
    steps[3].update(a2a_agent_id="@public/x", skills=[{"id": "s"}], env_vars={"A": "1"})
    assert one(tmp_path, steps).turns


def test_null_stands_for_an_absent_field(tmp_path: Path) -> None:
    steps = good.steps(system_prompt=None, parts=None, agent_name=None, max_conversation_turns=None)
    steps[1].update(artifacts=None, sandbox_name=None, fail_task_on_error=None)
    steps[2]["directives"][0]["args"] = None
    steps[3].update(agent_name="", role=None)
    steps[5].update(score_aggregator=None, verifier_id=None, retry_config=None)
    task = one(tmp_path, steps)
    verifier = task.steps[5]
    assert isinstance(verifier, EnvOutcomeVerifier)
    assert verifier.score_aggregator == "all_pass"
    assert task.agent_name == "default-agent"


def test_an_error_fails_the_episode_unless_the_step_says_otherwise_and_a_reset_unless_it_asks_to(
    tmp_path: Path,
) -> None:
    reset = {"id": "reset", "type": "reset_env", "env_id": "shop"}
    steps = [*good.steps(), reset, {**reset, "id": "must", "fail_task_on_error": True}]
    steps[1]["fail_task_on_error"] = False
    fails = {step.id: step.fail_task_on_error for step in one(tmp_path, steps).steps}
    assert (fails["env"], fails["seed"], fails["reset"], fails["must"]) == (True, False, False, True)


# Order


def test_steps_are_played_after_what_they_depend_on_and_else_in_file_order(tmp_path: Path) -> None:
    steps = good.steps()
    steps.insert(0, {**steps.pop(), "depends_on": [{"task_step_id": "ask"}]})
    for step, before in zip(steps[1:], [[], ["env"], ["env"], ["env"], ["agent", "seed", "day"]], strict=True):
        step["depends_on"] = before
    assert [step.id for step in one(tmp_path, steps).steps] == ["env", "seed", "day", "agent", "ask", "sold"]


def test_a_step_without_depends_on_waits_for_every_earlier_one(tmp_path: Path) -> None:
    steps = good.steps()
    steps[0]["depends_on"] = []
    steps[1]["depends_on"] = None
    assert [step.id for step in one(tmp_path, steps).steps][:2] == ["env", "seed"]


# Turns


def test_a_prompt_without_a_system_prompt_keeps_the_last_one(tmp_path: Path) -> None:
    steps = good.steps()
    steps[3]["system_prompt"] = "From the deploy."
    ask = steps.pop(4)
    for index, system_prompt in enumerate([None, "Changed.", "", None]):
        steps.insert(4 + index, {**ask, "id": f"p{index}", "prompt": str(index), "system_prompt": system_prompt})
    turns = one(tmp_path, steps).turns
    assert [turn.prompt for turn in turns] == ["0", "1", "2", "3"]
    assert [turn.system_prompt for turn in turns] == ["From the deploy.", "Changed.", "Changed.", "Changed."]


def test_no_system_prompt_is_none(tmp_path: Path) -> None:
    assert one(tmp_path, good.change(4, system_prompt="")).turns[0].system_prompt is None


# Scores


def scoring(root: Path, *verifiers: dict[str, Any]) -> Task:
    steps = good.steps(prompt_id="p")[:5]
    return one(root, [*steps, *verifiers])


def test_each_verifier_step_gives_a_score_and_several_make_no_reward(tmp_path: Path) -> None:
    task = scoring(tmp_path, good.env_verifier("a"), good.REPLY)
    assert (task.scores, task.reward_step) == (("a", "said"), None)


def test_an_aggregate_of_all_is_the_reward(tmp_path: Path) -> None:
    task = scoring(tmp_path, good.env_verifier("a"), good.REPLY, good.total("sum", "a", "said"))
    assert (task.scores, task.reward_step) == (("a", "said", "sum"), "sum")


def test_an_aggregate_of_some_leaves_the_reward_open(tmp_path: Path) -> None:
    assert scoring(tmp_path, good.env_verifier("a"), good.REPLY, good.total("sum", "a")).reward_step is None


def test_a_verifier_without_a_verifier_id_scores_too(tmp_path: Path) -> None:
    verifier = good.env_verifier("a")
    del verifier["verifier_id"]
    assert scoring(tmp_path, verifier).scores == ("a",)


def test_scorings_count_tasks_by_their_scores(folder: Path) -> None:
    two = [*good.steps(), {**good.steps()[5], "id": "again", "verifier_id": "again"}]
    (folder / "tasks" / "zz.json").write_text(json.dumps(two))
    scorings = load_bundle(folder).scorings
    assert [(s.scores, s.reward_step, s.tasks, s.example) for s in scorings] == [
        (("sold",), "sold", 4, "first"),
        (("sold", "again"), None, 1, "zz"),
    ]


# Toolsets


def test_tasks_that_offer_equal_tools_share_a_toolset(tmp_path: Path) -> None:
    def toolset(name: str, steps: list[dict[str, Any]]) -> str:
        return one(tmp_path / name, steps).toolset

    access = {"id": "hide", "type": "modify_env_tool_access", "env_id": "shop", "action": "disable", "role": "default"}
    sell = {**access, "tools": ["sell"]}
    plain = toolset("plain", good.steps())
    hidden = toolset("hidden", [*good.steps()[:4], sell, *good.steps()[4:]])
    assert plain
    assert plain == toolset("prompt", good.change(4, prompt="Another."))
    assert plain == toolset("config", good.change(2, timeout_seconds=5))
    other = [
        hidden,
        toolset("all", [*good.steps()[:4], {**access, "tools": "*"}, *good.steps()[4:]]),
        toolset("later", [*good.steps()[:5], sell, *good.steps()[5:]]),
        toolset("role", good.change(3, role="boss")),
        toolset("none", good.change(3, env_ids=[])),
    ]
    assert len({plain, *other}) == 6


# Sandboxes


def test_the_agent_works_in_the_sandbox_that_its_deploy_names(tmp_path: Path) -> None:
    task = one(tmp_path, good.BOX)
    assert (task.sandboxes, task.agent_sandbox) == (("box",), "box")
    assert (task.env_ids, task.scores) == ((), ("files",))


def test_a_sandbox_step_without_a_name_gives_the_agent_a_sandbox_of_its_own(tmp_path: Path) -> None:
    steps = [{**step} for step in good.BOX[1:]]
    steps[0] = {**steps[1]}
    del steps[0]["sandbox_name"]
    steps[1] = {**good.BOX[1], "agent_name": "default-agent"}
    del steps[1]["sandbox_name"]
    steps[3]["sandbox_name"] = " "
    task = one(tmp_path, steps)
    assert (task.sandboxes, task.agent_sandbox) == ((), "default-agent")


def test_an_agent_without_sandbox_steps_has_none(tmp_path: Path) -> None:
    assert one(tmp_path, good.steps()).agent_sandbox is None


@pytest.mark.parametrize(("sandbox", "folder"), [("box", "/loaded"), (None, "/tmp/file_artifacts")])
def test_a_sandbox_has_a_usual_folder_for_artifacts(tmp_path: Path, sandbox: str | None, folder: str) -> None:
    load = {"id": "more", "type": "load_artifact", "artifact_id": "check", "sandbox_name": sandbox}
    step = one(tmp_path, [*good.BOX[:4], {**load, "agent_name": "default-agent"}, good.BOX[4]]).steps[4]
    assert isinstance(step, LoadArtifact)
    assert step.destination_path == folder
