"""A task of three turns and three scores, on the real server, through the agent function: the helpdesk's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_env.authoring.oracle import load_oracle
from agent_env.authoring.script import Moves, answer, call, scripted
from agent_env.bundle import BundleError
from agent_env.episode.scores import mean
from agent_env.openenv import build_app
from agent_env.training.policies import Reply
from tests.bundles.rollouts import play, results

pytestmark = pytest.mark.integration

HELPDESK = Path(__file__).parents[2] / "bundles" / "helpdesk-v1"
ORACLE = load_oracle(HELPDESK).policies["oracle"]


def first_task() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HELPDESK / "tasks" / "eval.jsonl").read_text().splitlines()[0])
    return found


def prompts(task: dict[str, Any]) -> list[str]:
    return [step["prompt"] for step in task["steps"] if step["type"] == "prompt_agent"]


@pytest.fixture
def one_task(tmp_path: Path) -> Callable[..., Path]:
    """Makes a helpdesk of one task, changed by a function of its steps."""

    def make(change: Callable[[list[dict[str, Any]]], None] = lambda steps: None) -> Path:
        folder = tmp_path / "helpdesk-one"
        shutil.copytree(HELPDESK, folder, ignore=shutil.ignore_patterns("tasks", "evals", "__pycache__"))
        task = first_task()
        change(task["steps"])
        (folder / "tasks").mkdir()
        (folder / "tasks" / "one.json").write_text(json.dumps(task["steps"]))
        return folder

    return make


async def test_three_turns_are_one_rollout_with_the_mean_of_all_scores(one_task: Any, tmp_path: Path) -> None:
    sample = await play(one_task(), ORACLE, tmp_path / "rows", reward=mean)
    found = sample.metadata["agentenv"]
    assert (found["status"], found["end_reason"]) == ("scored", "end_turn")
    assert found["scores"] == {"triage": 1.0, "answer": 1.0, "changes": 1.0}
    assert sample.metadata["reward"] == sample.reward == 1.0


async def test_the_reward_may_be_one_step_and_all_scores_come_back(one_task: Any, tmp_path: Path) -> None:
    def routes_only(prompt: str) -> Moves:
        tickets = json.loads((yield call("list_tickets")))
        for ticket in tickets:
            yield call("route_ticket", ticket_id=ticket["id"], team="records", priority="low")

    sample = await play(one_task(), scripted(routes_only), tmp_path / "rows", reward="triage")
    scores = sample.metadata["agentenv"]["scores"]
    assert 0 < scores["triage"] < 1
    assert sample.reward == scores["triage"]
    assert (scores["answer"], scores["changes"]) == (0.0, 0.0)


def test_a_server_refuses_several_scores_without_a_reward_and_an_unknown_step() -> None:
    with pytest.raises(BundleError, match=r"several scores \('triage', 'answer', 'changes'\)"):
        build_app(HELPDESK)
    with pytest.raises(BundleError, match="no score 'total'"):
        build_app(HELPDESK, reward="total")


async def test_end_turns_result_is_the_next_turns_prompt(one_task: Any, tmp_path: Path) -> None:
    def ends(prompt: str) -> Moves:
        yield answer("one")
        yield answer("two")
        yield answer("three")

    sample = await play(one_task(), scripted(ends), tmp_path / "rows", reward=mean)
    first, second, third = prompts(first_task())
    assert sample.prompt[-1] == {"role": "user", "content": first}
    assert results(sample) == [second, third]
    assert sample.metadata["agentenv"]["end_reason"] == "end_turn"
    assert len(sample.records) == 3


async def test_a_reply_without_a_call_ends_the_turn_and_later_turns_end_empty(one_task: Any, tmp_path: Path) -> None:
    def policy(messages: Any, tools: Any, request: Any) -> Reply:
        if any(message["role"] == "tool" for message in messages):
            return Reply(content="I have routed it.")
        return Reply(calls=(call("route_ticket", ticket_id="T-101", team="records", priority="low"),))

    sample = await play(one_task(), policy, tmp_path / "rows", reward=mean)
    found = sample.metadata["agentenv"]
    assert (found["status"], found["end_reason"], found["turns"]) == ("scored", "replied", 2)
    assert set(found["scores"]) == {"triage", "answer", "changes"}
    assert (found["scores"]["answer"], found["scores"]["changes"]) == (0.0, 0.0)


async def test_a_reply_answers_the_prompt_of_its_own_turn(one_task: Any, tmp_path: Path) -> None:
    pattern = next(step for step in first_task()["steps"] if step["id"] == "answer")["criteria"][0]["pattern"]
    right = pattern.removeprefix(r"\A\W*").removesuffix(r"\W*\Z").replace("\\", "")

    def late(prompt: str) -> Moves:
        yield answer("routed")
        yield answer(right)
        yield answer("something else")

    def wrong_turn(prompt: str) -> Moves:
        yield answer(right)
        yield answer("something else")
        yield answer(right)

    for script, score in ((late, 1.0), (wrong_turn, 0.0)):
        rows = tmp_path / script.__name__
        bundle = one_task() if score else tmp_path / "helpdesk-one"
        sample = await play(bundle, scripted(script), rows, reward="answer")
        assert sample.reward == score


async def test_a_new_system_prompt_comes_with_its_turn_and_stays_until_another(one_task: Any, tmp_path: Path) -> None:
    def change(steps: list[dict[str, Any]]) -> None:
        next(step for step in steps if step["id"] == "ask")["system_prompt"] = "Be very short now."

    sample = await play(one_task(change), scripted(_ends), tmp_path / "rows", reward=mean)
    _, second, third = prompts(first_task())
    assert sample.prompt[0]["role"] == "system"
    assert results(sample) == [f"Be very short now.\n\n{second}", third]


async def test_a_row_offers_the_tools_of_all_turns_and_one_of_another_turn_is_an_error(
    one_task: Any, tmp_path: Path
) -> None:
    update = call("update_person", email="nobody@nowhere.example", field="phone", value="1")

    def early_and_late(prompt: str) -> Moves:
        yield update
        yield answer("")
        yield answer("")
        yield update

    sample = await play(one_task(), scripted(early_and_late), tmp_path / "rows", reward=mean)
    names = [tool["function"]["name"] for tool in json.loads(sample.metadata["tools"])]
    assert sorted(names) == ["end_turn", "find_people", "get_company", "list_tickets", "route_ticket", "update_person"]
    early, _, _, late = results(sample)
    assert "update_person" in early
    assert "there is nobody" in late
    counts = sample.metadata["agentenv"]
    assert (counts["unknown_tools"], counts["tool_errors"]) == (1, 1)


async def test_every_request_of_the_rollout_offers_the_same_tools(one_task: Any, tmp_path: Path) -> None:
    sample = await play(one_task(), scripted(_ends), tmp_path / "rows", reward=mean)
    tools = [record["request"]["tools"] for record in sample.records]
    assert len(tools) == 3
    assert all(each == tools[0] for each in tools)


def _ends(prompt: str) -> Moves:
    for _ in range(3):
        yield answer("")
