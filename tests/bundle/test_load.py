"""What a good bundle is read as."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import Bundle, LeftOut, Task, load_bundle
from agent_env.bundle.steps import EnvOutcomeVerifier, LoadArtifact, PromptAgent
from tests.bundle import good

Steps = list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return good.make(tmp_path)


def one(root: Path, steps: Steps) -> Task:
    """The only task of a bundle with these steps."""
    bundle = load_bundle(good.play(root, steps))
    assert not bundle.left_out
    return bundle.splits["all"].tasks[0]


def left_out(root: Path, steps: Steps) -> LeftOut:
    bundle = load_bundle(good.play(root, steps))
    assert len(bundle.splits["all"].tasks) == 0
    return bundle.left_out[0]


def names(bundle: Bundle, split: str) -> list[str]:
    return [task.name for task in bundle.splits[split].tasks]


def test_name_description_and_envs(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert (bundle.name, bundle.description) == ("shop-v1", "Sells things.")
    env = bundle.envs["shop"]
    assert env.folder == folder.resolve() / "envs" / "shop"
    assert env.command == ("python", "server.py")
    assert env.environ == {"GREETING": "hello there", "MODE": "fast"}
    assert (env.workdir, env.python, env.needs_docker) == ("/app", "3.11", None)
    assert env.environment_name == "shop"
    assert env.requirements == env.folder / "requirements.txt"
    assert env.dockerfile == env.folder / "Dockerfile"


def test_artifacts_have_their_types_and_files(folder: Path) -> None:
    (folder / "artifacts" / "check" / "__pycache__").mkdir()
    (folder / "artifacts" / "check" / "__pycache__" / "verify.pyc").touch()
    (folder / "artifacts" / "many").mkdir()
    for name in ("b.txt", "a.txt"):
        (folder / "artifacts" / "many" / name).touch()
    artifacts = load_bundle(folder).artifacts
    assert {name: artifact.type for name, artifact in artifacts.items()} == {
        "check": "file",
        "many": "file_artifact_universe",
        "stock": "environment",
    }
    assert [path.name for path in artifacts["check"].files] == ["verify.py"]
    assert [path.name for path in artifacts["many"].files] == ["a.txt", "b.txt"]
    assert [path.name for path in artifacts["stock"].files] == ["stock.json"]
    assert artifacts["stock"].environment_name == "shop"


def test_splits_are_all_in_file_order_and_one_for_each_eval_in_its_own(folder: Path) -> None:
    bundle = load_bundle(folder)
    assert list(bundle.splits) == ["all", "some", "train"]
    assert names(bundle, "all") == ["first", "more-0", "more-1", "more-2"]
    assert names(bundle, "some") == ["more-2", "first"]


def test_an_eval_may_name_a_jsonl_file_for_all_of_its_tasks(folder: Path) -> None:
    assert names(load_bundle(folder), "train") == ["more-0", "more-1", "more-2"]


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


def test_a_line_may_say_replayable_and_tags(folder: Path) -> None:
    line = {"name": "día/7 \u4e2d", "steps": good.steps(), "replayable": False, "tags": {"size": "4h"}}
    (folder / "tasks" / "zz.jsonl").write_text(json.dumps(line) + "\n\n")
    task = load_bundle(folder).splits["all"].tasks[-1]
    assert (task.name, task.replayable, task.tags) == ("día/7 \u4e2d", False, {"size": "4h"})


def test_line_separators_inside_texts_split_no_line(folder: Path) -> None:
    text = json.dumps({"name": "sep", "steps": good.steps(prompt="a\u2028b\u0085c")}, ensure_ascii=False)
    (folder / "tasks" / "zz.jsonl").write_text(text + "\r\n", encoding="utf-8")
    assert load_bundle(folder).splits["all"].tasks[-1].turns[0].prompt == "a\u2028b\u0085c"


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


@pytest.mark.parametrize(("sandbox", "folder"), [("box", "/loaded"), (None, "/tmp/file_artifacts")])
def test_a_sandbox_has_a_usual_folder_for_artifacts(tmp_path: Path, sandbox: str | None, folder: str) -> None:
    load = {"id": "more", "type": "load_artifact", "artifact_id": "check", "sandbox_name": sandbox}
    step = one(tmp_path, [*BOX[:4], {**load, "agent_name": "default-agent"}, BOX[4]]).steps[4]
    assert isinstance(step, LoadArtifact)
    assert step.destination_path == folder


def test_aliases_and_declared_ids_mean_the_folder(folder: Path) -> None:
    (folder / "envs" / "shop" / "env.toml").write_text("id = '@local/the-shop'\n")
    (folder / "artifacts" / "check" / "artifact.toml").write_text("id = '@local/the-check'\n")
    steps = good.steps()
    steps[0]["env_id"] = "store"
    steps[3]["env_ids"] = ["@local/the-shop"]
    steps[5]["file_artifact_id"] = "@local/the-check"
    (folder / "tasks" / "first.json").write_text(json.dumps(steps))
    bundle = load_bundle(folder)
    task = bundle.splits["all"].tasks[0]
    assert task.env_ids == task.turns[0].env_ids == ("shop",)
    assert isinstance(task.steps[5], EnvOutcomeVerifier)
    assert task.steps[5].file_artifact_id == "check"
    assert bundle.envs["store"] is bundle.envs["shop"]


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


def env_verifier(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "env_outcome_verifier",
        "env_id": "shop",
        "file_artifact_id": "check",
        "verifier_id": f"v-{name}",
    }


REPLY = {
    "id": "said",
    "type": "agent_prompt_response_verifier",
    "prompt_id": "p",
    "verifier_id": "v-said",
    "criteria": [
        {"type": "response_contains", "needles": ["sold"], "weight": 2},
        {"type": "response_regex_present", "pattern": "^s", "flags": ["IGNORECASE"], "criterion": "starts with s"},
    ],
}


def total(name: str, *verifiers: str) -> dict[str, Any]:
    ids = [f"v-{verifier}" for verifier in verifiers]
    return {"id": name, "type": "aggregate_verifiers", "verifier_ids": ids}


def test_each_verifier_step_gives_a_score_and_several_make_no_reward(tmp_path: Path) -> None:
    task = scoring(tmp_path, env_verifier("a"), REPLY)
    assert (task.scores, task.reward_step) == (("a", "said"), None)


def test_an_aggregate_of_all_is_the_reward(tmp_path: Path) -> None:
    task = scoring(tmp_path, env_verifier("a"), REPLY, total("sum", "a", "said"))
    assert (task.scores, task.reward_step) == (("a", "said", "sum"), "sum")


def test_an_aggregate_of_some_leaves_the_reward_open(tmp_path: Path) -> None:
    assert scoring(tmp_path, env_verifier("a"), REPLY, total("sum", "a")).reward_step is None


def test_a_verifier_without_a_verifier_id_scores_too(tmp_path: Path) -> None:
    verifier = env_verifier("a")
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
    def toolset(name: str, steps: Steps) -> str:
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

BOX: Steps = [
    {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm", "sandbox_type": "local"},
    {
        "id": "load",
        "type": "load_artifact",
        "sandbox_name": "box",
        "artifact_id": "check",
        "destination_path": "/app/x",
    },
    {"id": "agent", "type": "deploy_agent", "sandbox_name": "box"},
    {"id": "ask", "type": "prompt_agent", "prompt": "Write a file."},
    {
        "id": "files",
        "type": "verify_sandbox",
        "sandbox_name": "box",
        "criteria": [
            {"type": "probe_file_exists", "paths": ["x"]},
            {"type": "probe_dir_exists", "paths": ["/app"]},
            {"type": "probe_file_contains", "paths": ["x"], "value": "a+"},
            {"type": "bash_cmd_succeeds", "bash_cmd": "true", "criterion": "works"},
        ],
    },
]


def test_the_agent_works_in_the_sandbox_that_its_deploy_names(tmp_path: Path) -> None:
    task = one(tmp_path, BOX)
    assert (task.sandboxes, task.agent_sandbox) == (("box",), "box")
    assert (task.env_ids, task.scores) == ((), ("files",))


def test_a_sandbox_step_without_a_name_gives_the_agent_a_sandbox_of_its_own(tmp_path: Path) -> None:
    steps = [{**step} for step in BOX[1:]]
    steps[0] = {**steps[1]}
    del steps[0]["sandbox_name"]
    steps[1] = {**BOX[1], "agent_name": "default-agent"}
    del steps[1]["sandbox_name"]
    steps[3]["sandbox_name"] = " "
    task = one(tmp_path, steps)
    assert (task.sandboxes, task.agent_sandbox) == ((), "default-agent")


def test_an_agent_without_sandbox_steps_has_none(tmp_path: Path) -> None:
    assert one(tmp_path, good.steps()).agent_sandbox is None


# Left out

LEFT_OUT: dict[str, tuple[Steps, str, str, str]] = {
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
    "sandbox with an image": ([{**BOX[0], "image": "x"}, *BOX[1:]], "box", "deploy_sandbox", "image"),
    "remote sandbox": ([{**BOX[0], "sandbox_type": "e2b"}, *BOX[1:]], "box", "deploy_sandbox", "'e2b'"),
    "judged criterion": (
        [*BOX[:4], {**BOX[4], "criteria": [{"type": "tidy"}]}],
        "files",
        "verify_sandbox",
        "'tidy' needs a judge",
    ),
}


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
    assert names(bundle, "some") == ["more-2"]
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


# Fingerprints


def test_the_fingerprint_covers_what_is_read_and_nothing_else(folder: Path) -> None:
    first = load_bundle(folder).fingerprint
    assert len(first) == 64
    (folder / "README.md").write_text("Other words.")
    (folder / "build.py").write_text("x")
    (folder / "envs" / "shop" / "__pycache__").mkdir()
    (folder / "envs" / "shop" / "__pycache__" / "x.pyc").touch()
    assert load_bundle(folder).fingerprint == first
    seen = {first}
    for path, text in {
        "tasks/first.json": json.dumps(good.change(4, prompt="Other.")),
        "artifacts/stock/stock.json": "{}",
        "envs/shop/server.py": "x",
        "evals/some.toml": 'tasks = ["first"]',
        "aliases.toml": "",
    }.items():
        (folder / path).write_text(text)
        seen.add(load_bundle(folder).fingerprint)
    assert len(seen) == 6


def test_a_copy_of_a_bundle_has_its_fingerprint(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "shop-v1"
    shutil.copytree(folder, copy)
    assert load_bundle(copy).fingerprint == load_bundle(folder).fingerprint
    assert load_bundle(copy).envs["shop"].digest == load_bundle(folder).envs["shop"].digest


def test_an_envs_digest_changes_with_names_contents_and_executable_bits(folder: Path) -> None:
    def digest() -> str:
        return load_bundle(folder).envs["shop"].digest

    seen = [digest()]
    env = folder / "envs" / "shop"
    (env / ".dockerignore").write_text("x")
    seen.append(digest())
    (env / ".dockerignore").rename(env / ".other")
    seen.append(digest())
    (env / "server.py").chmod(0o755)
    seen.append(digest())
    assert len(set(seen)) == 4


# Envs without a plain Dockerfile


def test_env_toml_alone_starts_server_py(folder: Path) -> None:
    (folder / "envs" / "shop" / "Dockerfile").unlink()
    (folder / "envs" / "shop" / "env.toml").write_text("environment_name = 'corner-shop'\n")
    env = load_bundle(folder).envs["shop"]
    assert (env.command, env.workdir, env.environment_name) == (("python", "server.py"), "/app", "corner-shop")
    assert (env.dockerfile, env.needs_docker) == (None, None)


def test_an_image_by_reference_needs_docker(folder: Path) -> None:
    (folder / "envs" / "shop" / "env.toml").write_text('image = { ref = "registry.example/shop:1" }\n')
    env = load_bundle(folder).envs["shop"]
    assert (env.image, env.dockerfile) == ("registry.example/shop:1", None)
    assert env.needs_docker == "env.toml: its image is registry.example/shop:1"


def test_an_image_artifact_is_what_the_env_is_built_from(folder: Path) -> None:
    (folder / "envs" / "shop").rename(folder / "artifacts" / "shop-image")
    (folder / "envs" / "shop").mkdir()
    (folder / "envs" / "shop" / "env.toml").write_text('image = "shop-image"\n')
    env = load_bundle(folder).envs["shop"]
    assert env.folder == folder.resolve() / "artifacts" / "shop-image"
    assert (env.name, env.command) == ("shop", ("python", "server.py"))


@pytest.mark.parametrize("text", ["", "# nothing\n\n", "agent-env>=0.1\n"])
def test_a_requirements_file_that_lists_nothing_is_none(folder: Path, text: str) -> None:
    (folder / "envs" / "shop" / "requirements.txt").write_text(text)
    assert load_bundle(folder).envs["shop"].requirements is None


@pytest.mark.parametrize(
    ("readme", "description"),
    [
        ("", ""),
        ("# Title only\n", ""),
        ("---\ntitle: x\n---\n\n# T\n<p>\n[![badge](x)](y)\n![image](x)\n\nWhat it is.\nMore.\n", "What it is."),
        ("\ufeffFirst line.\r\nSecond.\r\n", "First line."),
    ],
)
def test_the_description_is_the_first_text_of_the_readme(folder: Path, readme: str, description: str) -> None:
    (folder / "README.md").write_text(readme, encoding="utf-8")
    assert load_bundle(folder).description == description


def test_dot_files_caches_and_loose_files_are_no_part_of_a_bundle(folder: Path) -> None:
    for path in ("envs/.cache/x", "envs/__pycache__/x", "envs/notes.txt", "tasks/README.md", ".git/config"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    assert set(load_bundle(folder).envs) == {"shop", "store"}


def test_nothing_of_a_bundle_is_run(folder: Path, tmp_path: Path) -> None:
    bomb = f"open({str(tmp_path / 'ran')!r}, 'w')\nasync def verify(mcp_url): ...\n"
    (folder / "artifacts" / "check" / "verify.py").write_text(bomb)
    (folder / "envs" / "shop" / "server.py").write_text(bomb)
    load_bundle(folder)
    assert not (tmp_path / "ran").exists()


def test_an_error_fails_the_episode_unless_the_step_says_otherwise_and_a_reset_unless_it_asks_to(
    tmp_path: Path,
) -> None:
    reset = {"id": "reset", "type": "reset_env", "env_id": "shop"}
    steps = [*good.steps(), reset, {**reset, "id": "must", "fail_task_on_error": True}]
    steps[1]["fail_task_on_error"] = False
    fails = {step.id: step.fail_task_on_error for step in one(tmp_path, steps).steps}
    assert (fails["env"], fails["seed"], fails["reset"], fails["must"]) == (True, False, False, True)


def test_steps_are_typed_and_frozen(folder: Path) -> None:
    task = load_bundle(folder).splits["all"].tasks[0]
    seed, ask = task.steps[1], task.steps[4]
    assert isinstance(seed, LoadArtifact)
    assert [artifact.id for artifact in seed.artifacts] == ["stock"]
    assert isinstance(ask, PromptAgent)
    with pytest.raises(ValueError, match="frozen"):
        ask.prompt = "x"  # type: ignore[misc]
