"""Several turns, envs and scores; seed data, configuration, tool access."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from agent_env.env import Env, tool
from agent_env.episode import EpisodeFailed, ErrorKind, Failure, Outcome, Prompt
from agent_env.sandbox.interface import EnvInstance, Verification

from .conftest import Make
from .doubles import AGENT, DEPLOY, PROMPT, VERIFY, Counter, FakeInstance, FakeSandbox, make_bundle, make_task, step


class Notes(Env):
    """Keeps notes."""

    name = "notes"

    def __init__(self) -> None:
        self.notes: list[str] = []

    @tool
    def note(self, text: str) -> str:
        """Keep a note."""
        self.notes.append(text)
        return f"{len(self.notes)} notes"


def env_of(sandbox: FakeSandbox, name: str) -> Any:
    return next(instance.serves for instance in sandbox.instances if instance.env.name == name)


def prompt(id: str, text: str, **fields: Any) -> Any:
    return step("prompt_agent", id, prompt=text, prompt_id=id, **fields)


def replied(id: str, prompt_id: str, *needles: str, **fields: Any) -> Any:
    criteria = [{"type": "response_contains", "needles": [needle]} for needle in needles]
    return step("agent_prompt_response_verifier", id, prompt_id=prompt_id, criteria=criteria, **fields)


async def test_end_turn_gives_the_next_prompt_and_the_last_one_the_outcome(make: Make) -> None:
    task = make_task(
        DEPLOY,
        AGENT,
        prompt("one", "First."),
        prompt("two", "Second.", system_prompt="Other."),
        prompt("three", "3."),
        VERIFY,
    )
    episode = make(task)
    assert await episode.start() == Prompt(0, "First.", "You count.")
    await episode.call("add", {"amount": 1})
    assert await episode.end_turn("a") == Prompt(1, "Second.", "Other.")
    assert episode.turn == 1
    await episode.call("add", {"amount": 2})
    assert (await episode.end_turn("")) == Prompt(2, "3.", "You count.")
    assert await episode.end_turn("") == Outcome(0.3, {"check": 0.3})


async def test_steps_between_turns_run_between_them(make: Make) -> None:
    config = step(
        "apply_server_config",
        "config",
        env_id="counter",
        directives=[{"service": "*", "uri": "urn:test:start-at/v1", "args": {"count": 9}}],
    )
    episode = make(make_task(DEPLOY, AGENT, prompt("one", "1"), config, prompt("two", "2"), VERIFY))
    await episode.start()
    await episode.call("add", {"amount": 1})
    await episode.end_turn("")
    assert (await episode.call("add", {"amount": 1})).text == "the counter is at 10"


async def test_a_verifier_between_turns_scores_what_was_there_then(make: Make) -> None:
    first = VERIFY.model_copy(update={"id": "early", "verifier_id": "early"})
    task = make_task(DEPLOY, AGENT, prompt("one", "1"), first, prompt("two", "2"), VERIFY)
    episode = make(task, reward=lambda scores: sum(scores.values()) / len(scores))
    await episode.start()
    await episode.call("add", {"amount": 2})
    await episode.end_turn("")
    await episode.call("add", {"amount": 6})
    assert await episode.end_turn("") == Outcome(0.5, {"early": 0.2, "check": 0.8})


async def test_replies_are_scored_by_the_prompt_they_answer(make: Make) -> None:
    task = make_task(
        DEPLOY,
        AGENT,
        prompt("one", "1"),
        prompt("two", "2"),
        replied("first", "one", "red"),
        replied("second", "two", "red", "blue", score_aggregator="weighted_average"),
    )
    episode = make(task, reward="second")
    await episode.start()
    await episode.end_turn("a red one")
    assert await episode.end_turn("a blue one") == Outcome(0.5, {"first": 1.0, "second": 0.5})


async def test_regular_expressions_are_searched_in_the_reply(make: Make) -> None:
    criteria = [
        {"type": "response_regex_present", "pattern": "a.b"},
        {"type": "response_regex_present", "pattern": "HELLO", "flags": ["IGNORECASE"]},
        {"type": "response_regex_present", "pattern": "^x", "flags": []},
        {"type": "response_contains", "needles": ["hello", "b"]},
    ]
    verifier = step(
        "agent_prompt_response_verifier", "r", prompt_id="one", criteria=criteria, score_aggregator="weighted_average"
    )
    episode = make(make_task(DEPLOY, AGENT, prompt("one", "1"), verifier))
    await episode.start()
    assert await episode.end_turn("hello\na\nb") == Outcome(0.75, {"r": 0.75})


async def test_an_expression_that_never_ends_leaves_the_episode_unscored(make: Make) -> None:
    criteria = [{"type": "response_regex_present", "pattern": "(a+)+$"}]
    verifier = step("agent_prompt_response_verifier", "r", prompt_id="one", criteria=criteria)
    episode = make(make_task(DEPLOY, AGENT, prompt("one", "1"), verifier), verify_timeout=0.5)
    await episode.start()
    with pytest.raises(EpisodeFailed, match=r"took longer than 0\.5 s") as failed:
        await episode.end_turn("a" * 60 + "!")
    assert failed.value.reason is Failure.UNSCORED


async def test_an_aggregate_scores_the_rows_of_several_verifiers(make: Make, sandbox: FakeSandbox) -> None:
    async def verify(instance: EnvInstance, verification: Verification) -> Any:
        return [{"result": True, "weight": 3}, {"result": False, "skipped": True, "weight": 100}]

    sandbox.verifies = verify
    whole = step("aggregate_verifiers", "whole", verifier_ids=["check", "said"])
    task = make_task(DEPLOY, AGENT, prompt("one", "1"), VERIFY, replied("says", "one", "no", verifier_id="said"), whole)
    episode = make(task, reward="whole")
    await episode.start()
    outcome = await episode.end_turn("yes")
    assert isinstance(outcome, Outcome)
    assert outcome.reward == outcome.scores["whole"] == 0.75
    assert outcome.scores["says"] == 0.0


async def test_an_aggregate_of_a_verifier_that_gave_nothing_is_unscored(make: Make) -> None:
    whole = step("aggregate_verifiers", "whole", verifier_ids=["check", "other"])
    episode = make(make_task(DEPLOY, AGENT, PROMPT, VERIFY, whole), reward="whole")
    await episode.start()
    with pytest.raises(EpisodeFailed, match="no verifier has given rows as other"):
        await episode.end_turn("")


async def test_a_bundle_file_that_is_gone_leaves_the_episode_unscored(make: Make, tmp_path: Path) -> None:
    episode = make()
    await episode.start()
    (tmp_path / "artifacts" / "check" / "verify.py").unlink()
    with pytest.raises(EpisodeFailed, match="No such file or directory") as failed:
        await episode.end_turn("")
    assert failed.value.reason is Failure.UNSCORED


async def test_a_verifier_sees_the_turn_that_its_prompt_id_names(make: Make, sandbox: FakeSandbox) -> None:
    seen: list[Any] = []

    async def verify(instance: EnvInstance, verification: Verification) -> Any:
        seen.append(verification.run["turns"])
        return [{"result": True}]

    sandbox.verifies = verify
    check = VERIFY.model_copy(update={"prompt_id": "one"})
    last = VERIFY.model_copy(update={"id": "last"})
    episode = make(make_task(DEPLOY, AGENT, prompt("one", "1"), prompt("two", "2"), check, last), reward="check")
    await episode.start()
    await episode.end_turn("first")
    await episode.end_turn("second")
    assert seen == [
        [{"prompt_id": "one", "message": {"text": "1"}, "reply": {"text": "first"}}],
        [{"prompt_id": "two", "message": {"text": "2"}, "reply": {"text": "second"}}],
    ]


@pytest.mark.parametrize(
    ("reward", "why"),
    [
        (None, r"2 scores \(check, says\), so reward= must name one or combine them"),
        ("other", r"reward= names 'other', and the task's scores are: check, says"),
        (lambda scores: scores["c"], "KeyError: 'c'"),
        (lambda scores: float("nan"), "nan is no score"),
        (lambda scores: 1e400, "inf is no score"),
        (lambda scores: None, "None .NoneType. is no score"),
    ],
)
async def test_a_reward_that_is_no_number_leaves_the_episode_unscored(make: Make, reward: Any, why: str) -> None:
    task = make_task(DEPLOY, AGENT, prompt("one", "1"), VERIFY, replied("says", "one", "x"))
    episode = make(task, reward=reward)
    await episode.start()
    with pytest.raises(EpisodeFailed, match=why) as failed:
        await episode.end_turn("")
    assert failed.value.reason is Failure.UNSCORED


async def test_an_async_reward_is_refused_and_leaves_no_coroutine(make: Make) -> None:
    async def reward(scores: Any) -> float:
        return 1.0

    episode = make(reward=reward)
    await episode.start()
    with pytest.raises(EpisodeFailed, match="must not be async"):
        await episode.end_turn("")


async def test_the_bundles_reward_step_is_the_default(make: Make) -> None:
    task = make_task(DEPLOY, AGENT, prompt("one", "1"), VERIFY, replied("says", "one", "x"))
    episode = make(dataclasses.replace(task, reward_step="says"))
    await episode.start()
    outcome = await episode.end_turn("x")
    assert isinstance(outcome, Outcome)
    assert outcome.reward == 1.0


async def test_envs_are_deployed_at_once_and_offer_their_tools_in_order(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.serves = {"counter": Counter, "notes": Notes}
    sandbox.deploy_seconds = 0.02
    agent = step("deploy_agent", "agent", env_ids=["notes", "counter"])
    notes = step("deploy_env", "notes", env_id="notes")
    episode = make(make_task(DEPLOY, notes, agent, PROMPT, VERIFY))
    await episode.start()
    assert sandbox.most_deploying == 2
    assert [tool.name for tool in episode.tools] == ["note", "add", "take", "fail", "wait", "end_turn"]
    assert (await episode.call("note", {"text": "x"})).text == "1 notes"
    assert (await episode.call("add", {"amount": 1})).text == "the counter is at 1"
    await episode.close()
    assert [instance.killed for instance in sandbox.instances] == [1, 1]


async def test_an_env_that_does_not_come_up_takes_the_others_down(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.serves = {"counter": Counter, "notes": Notes}
    sandbox.refuse = "notes"
    episode = make(make_task(DEPLOY, step("deploy_env", "n", env_id="notes"), AGENT, PROMPT, VERIFY))
    with pytest.raises(EpisodeFailed, match="step 'n': env 'notes' ended while starting") as failed:
        await episode.start()
    assert failed.value.reason is Failure.DEPLOY_FAILED
    await episode.close()
    assert all(instance.killed for instance in sandbox.instances)


async def test_a_deploy_that_may_fail_takes_nobody_down(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.serves = {"counter": Counter, "notes": Notes}
    sandbox.refuse = "notes"
    notes = step("deploy_env", "n", env_id="notes", fail_task_on_error=False)
    for first, second in ((notes, DEPLOY), (DEPLOY, notes)):
        episode = make(make_task(first, second, AGENT, PROMPT, VERIFY))
        await episode.start()
        assert (await episode.call("add", {"amount": 1})).error is None


async def test_two_envs_with_a_tool_of_the_same_name_are_refused_by_both_names(
    make: Make, sandbox: FakeSandbox
) -> None:
    class Other(Env):
        @tool
        def add(self) -> str:
            """Add."""
            return ""

    sandbox.serves = {"counter": Counter, "other": Other}
    agent = step("deploy_agent", "agent", env_ids=["counter", "other"])
    other = step("deploy_env", "other", env_id="other")
    with pytest.raises(EpisodeFailed, match="env 'other': offers a tool 'add', as env 'counter' does; hide one"):
        await make(make_task(DEPLOY, other, agent, PROMPT, VERIFY)).start()
    hide = step("modify_env_tool_access", "hide", env_id="other", action="disable", role="default", tools=["add"])
    episode = make(make_task(DEPLOY, other, hide, agent, PROMPT, VERIFY))
    await episode.start()
    assert (await episode.call("add", {"amount": 1})).text == "the counter is at 1"


async def test_tools_change_by_turn_and_one_of_another_turn_is_unknown(make: Make, sandbox: FakeSandbox) -> None:
    show = step("modify_env_tool_access", "show", env_id="counter", action="enable", role="default", tools=["peek"])
    hide = step("modify_env_tool_access", "hide", env_id="counter", action="disable", role="default", tools="*")
    task = make_task(DEPLOY, AGENT, prompt("one", "1"), hide, show, prompt("two", "2"), VERIFY)
    episode = make(task)
    await episode.start()
    assert (await episode.call("peek", {})).error is ErrorKind.UNKNOWN_TOOL
    await episode.end_turn("")
    assert [tool.name for tool in episode.tools] == ["peek", "end_turn"]
    assert (await episode.call("peek", {})).text == "0"
    assert (await episode.call("add", {"amount": 1})).message == (
        "there is no tool 'add'; the tools are: peek, end_turn"
    )


async def test_tool_access_is_by_the_agents_role(make: Make) -> None:
    agent = step("deploy_agent", "agent", env_ids=["counter"], role="auditor")
    others = step("modify_env_tool_access", "x", env_id="counter", action="disable", role="default", tools=["add"])
    own = step("modify_env_tool_access", "y", env_id="counter", action="enable", role="auditor", tools=["peek"])
    episode = make(make_task(DEPLOY, agent, others, own, PROMPT, VERIFY))
    await episode.start()
    assert [tool.name for tool in episode.tools] == ["add", "take", "fail", "wait", "peek", "end_turn"]


async def test_seed_data_is_added_to_an_env_that_was_reset(make: Make, sandbox: FakeSandbox, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, files={"seed/data.json": '{"x": 1}'})
    load = step("load_artifact", "load", env_id="counter", artifact_id="seed")
    episode = make(make_task(DEPLOY, load, AGENT, PROMPT, VERIFY), bundle)
    await episode.start()
    counter: Counter = env_of(sandbox, "counter")
    assert counter.resets == 1
    assert counter.parts == [
        {
            "kind": "file",
            "file": {
                "bytes": base64.b64encode(b'{"x": 1}').decode(),
                "mimeType": "application/json",
                "name": "data.json",
            },
        }
    ]


def directive(uri: str, service: str = "counter", **args: Any) -> Any:
    return {"service": service, "uri": uri, "args": args}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (directive("urn:test:other/v1"), "urn:test:other/v1 can't be applied: its card doesn't list the extension"),
        (directive("urn:test:start-at/v1", "mail", count=1), "its card is named 'counter', not 'mail'"),
        (directive("urn:test:start-at/v1", count=-1), "the env answered 400: count must not be negative"),
        (directive("urn:test:start-at/v1", count="x"), "the env answered 400: argument count: expected an integer"),
    ],
)
async def test_configuration_that_the_env_refuses_fails_the_deploy(make: Make, given: Any, why: str) -> None:
    config = step("apply_server_config", "config", env_id="counter", directives=[given])
    with pytest.raises(EpisodeFailed, match="step 'config': env 'counter'") as failed:
        await make(make_task(DEPLOY, config, AGENT, PROMPT, VERIFY)).start()
    assert failed.value.reason is Failure.DEPLOY_FAILED
    assert why in str(failed.value)


async def test_tolerated_unadvertised_configuration_is_skipped(make: Make, sandbox: FakeSandbox) -> None:
    config = step(
        "apply_server_config",
        "config",
        env_id="counter",
        directives=[directive("urn:test:other/v1"), directive("urn:test:start-at/v1", "*", count=3)],
        tolerate_unadvertised=True,
    )
    await make(make_task(DEPLOY, config, AGENT, PROMPT, VERIFY)).start()
    assert env_of(sandbox, "counter").count == 3


async def test_a_step_that_may_fail_does_not_fail_the_task(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.serves = {"counter": Counter, "notes": Notes}
    reset = step("reset_env", "reset", env_id="notes")
    notes = step("deploy_env", "notes", env_id="notes")
    must = step("reset_env", "reset", env_id="notes", fail_task_on_error=True)
    await make(make_task(DEPLOY, notes, reset, AGENT, PROMPT, VERIFY)).start()
    with pytest.raises(EpisodeFailed, match="step 'reset': env 'notes': data/reset: method_not_found"):
        await make(make_task(DEPLOY, notes, must, AGENT, PROMPT, VERIFY)).start()


async def test_a_verifier_that_may_fail_leaves_its_score_out(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.verifies = None
    check = VERIFY.model_copy(update={"fail_task_on_error": False})
    task = make_task(DEPLOY, AGENT, prompt("one", "1"), check, replied("says", "one", "x"))
    episode = make(task, reward="says")
    await episode.start()
    assert await episode.end_turn("x") == Outcome(1.0, {"says": 1.0})


async def test_an_env_lost_between_turns_ends_the_episode_as_lost(make: Make, sandbox: FakeSandbox) -> None:
    episode = make(make_task(DEPLOY, AGENT, prompt("one", "1"), prompt("two", "2"), VERIFY))
    await episode.start()
    instance = sandbox.instances[0]
    assert isinstance(instance, FakeInstance)
    instance.die("exit status 9")
    await asyncio.sleep(0)
    with pytest.raises(EpisodeFailed, match="exit status 9") as failed:
        await episode.end_turn("")
    assert failed.value.reason is Failure.ENV_LOST
