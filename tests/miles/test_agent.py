"""The functions that Miles calls to play and to abort: what they return, whatever comes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent_env.training.backoff import FailureBrake
from agent_env.training.miles import agent
from agent_env.training.miles.evals import eval_splits
from tests.miles.samples import Args
from tests.training.chat_server import END, Answer, ChatServer, call, completion
from tests.training.env_server import EnvServer
from tests.training.playing import outcome
from tests.training.row import PROMPT, metadata

RESERVED = {
    "raw_reward",
    "round_number",
    "messages",
    "lifecycle",
    "leaf",
    "tito_session_mismatch",
    "accumulated_token_ids",
    "max_trim_tokens",
    "opd_student_top_logprobs",
    "start_rollout_id",
    "rm_type",
    "tools",
}
SLOW = Answer(body=END, delay=30)


# -- run -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": "<|im_start|>"}, "--apply-chat-template"),  # case 38
        ({"metadata": {}}, "--metadata-key"),
        ({"metadata": None}, "--metadata-key"),
        ({"metadata": {**metadata("http://h"), "tools": "{"}}, "tools is not JSON"),
        ({"base_url": None}, "--use-session-server"),
        ({"base_url": ""}, "--use-session-server"),
        ({"request_kwargs": {"stop": {1}}}, "request_kwargs"),
        ({"request_kwargs": {"temperature": float("nan")}}, "request_kwargs"),
        ({"request_kwargs": [1]}, "request_kwargs"),
    ],
)
async def test_a_row_that_cant_be_played_is_flagged_with_what_to_mend(changed: dict[str, Any], said: str) -> None:
    given = {"base_url": "http://127.0.0.1:9/sessions/x", "prompt": list(PROMPT), "metadata": metadata("http://h")}
    result = await agent.run(**{**given, **changed})
    assert outcome(result) == ("failed", "invalid_row", 0.0)
    assert said in result["agentenv"]["error"]
    json.dumps(result, allow_nan=False)


async def test_what_it_returns_is_json_under_keys_that_miles_doesnt_reserve() -> None:
    env, chat = EnvServer(), ChatServer(END)
    async with env.serve(), chat.serve():
        for given in (metadata(env.url), {}):
            result = await agent.run(base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=given)
            assert type(result) is dict
            assert json.loads(json.dumps(result, allow_nan=False)) == result
            assert not set(result) & RESERVED
            assert type(result["reward"]) is float
            assert type(result["agent_metrics"]["total_tool_time"]) is float


async def test_what_miles_passed_is_not_changed() -> None:
    env, chat = EnvServer(), ChatServer(completion(None, call("add", {"x": 1})), END)
    prompt, kwargs = [dict(message) for message in PROMPT], {"temperature": 1.0}
    async with env.serve(), chat.serve():
        given = metadata(env.url)
        before = json.dumps([prompt, kwargs, given])
        await agent.run(base_url=chat.base_url, prompt=prompt, request_kwargs=kwargs, metadata=given, agent_config=None)
        assert json.dumps([prompt, kwargs, given]) == before


async def test_a_bug_is_flagged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(agent, "_prepare", broken)
    result = await agent.run(base_url="http://h", prompt=list(PROMPT), request_kwargs={}, metadata=metadata("http://h"))
    assert result["agentenv"]["status"] == "failed"
    assert "ZeroDivisionError" in result["agentenv"]["error"]


async def test_the_same_task_played_at_once_has_an_episode_id_each() -> None:
    """Case 117."""
    env, chat = EnvServer(), ChatServer(END)
    async with env.serve(), chat.serve():
        row = {"base_url": chat.base_url, "prompt": list(PROMPT), "request_kwargs": {}, "metadata": metadata(env.url)}
        results = await asyncio.gather(*(agent.run(**row) for _ in range(8)))
    assert len({result["agentenv"]["episode_id"] for result in results}) == 8


def test_nothing_is_kept_between_event_loops() -> None:
    """Case 41: and a server may restart between two rollouts."""

    async def one() -> dict[str, Any]:
        env, chat = EnvServer(), ChatServer(END)
        async with env.serve(), chat.serve():
            return await agent.run(
                base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=metadata(env.url)
            )

    for _ in range(2):
        assert outcome(asyncio.run(one())) == ("scored", "end_turn", 1.0)


def test_importing_it_is_light() -> None:
    """Case 105."""
    heavy = "'fastapi', 'starlette', 'uvicorn', 'h11', 'docker', 'openai', 'httpx', 'websockets', 'pydantic', 'rich'"
    code = f"import sys, agent_env.training.miles.agent; print([m for m in ({heavy}) if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "[]\n"


# -- cancellation and abort ------------------------------------------------------------------------------------------


class Playing:
    """Rollouts in flight, each in a task of its own, waiting for the model."""

    def __init__(self, env: EnvServer, chat: ChatServer) -> None:
        self.env = env
        self.chat = chat

    def start(self, split: str = "train", count: int = 1) -> list[asyncio.Task[dict[str, Any]]]:
        given = {**metadata(self.env.url, model_timeout=60.0), "split": split}
        return [
            asyncio.create_task(
                agent.run(base_url=self.chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=given)
            )
            for _ in range(count)
        ]

    async def reached(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.chat.requests) < count:
                await asyncio.sleep(0.01)

    async def closed(self) -> None:
        async with asyncio.timeout(5):
            while self.env.live:
                await asyncio.sleep(0.01)


async def test_miles_own_cancellation_is_passed_on_and_the_env_is_closed() -> None:
    env, chat = EnvServer(), ChatServer(SLOW)
    async with env.serve(), chat.serve():
        playing = Playing(env, chat)
        (task,) = playing.start()
        await playing.reached(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await playing.closed()
    assert not agent._running


async def test_a_cancellation_that_miles_didnt_send_doesnt_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    async def cancelled(*args: Any, **kwargs: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr("agent_env.training.chat.ChatSession.complete", cancelled)
    env, chat = EnvServer(), ChatServer(END)
    async with env.serve(), chat.serve():
        result = await agent.run(
            base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=metadata(env.url)
        )
    assert outcome(result) == ("failed", "aborted", 0.0)


async def test_a_timeout_around_it_is_passed_on() -> None:
    env, chat = EnvServer(), ChatServer(SLOW)
    async with env.serve(), chat.serve():
        playing = Playing(env, chat)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await playing.start()[0]
        await playing.closed()


async def test_abort_cancels_training_rollouts_closes_their_envs_and_spares_evals(tmp_path: Path) -> None:
    data = [str(tmp_path / "train.jsonl"), "eval", str(tmp_path / "eval.jsonl")]
    args = Args(prompt_data=data[0], eval_prompt_data=data[1:])
    env, chat = EnvServer(), ChatServer(SLOW)
    async with env.serve(), chat.serve():
        playing = Playing(env, chat)
        train, evals = playing.start("train", 4), playing.start("eval", 2)
        await playing.reached(6)
        began = time.monotonic()
        await agent.abort(args)
        assert time.monotonic() - began < 2
        results = await asyncio.gather(*train)
        assert {outcome(result) for result in results} == {("failed", "aborted", 0.0)}
        assert results[0]["agentenv"]["task_id"] == "@local/double/three"
        assert not any(task.done() for task in evals)
        assert env.live == 2
        later = playing.start("train")
        await playing.reached(7)
        assert not later[0].done()
        for task in [*evals, *later]:
            task.cancel()
        await asyncio.gather(*evals, *later, return_exceptions=True)
        await playing.closed()


async def test_abort_ends_rollouts_that_wait_or_are_held_back(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, chat = EnvServer(), ChatServer(SLOW)
    env.url = f"http://127.0.0.1:{unused_tcp_port}"
    chat.base_url = "http://127.0.0.1:9/sessions/x"
    monkeypatch.setattr(FailureBrake, "delay", lambda self, result: 60.0)
    tasks = Playing(env, chat).start("train", 3)
    chat.base_url = ""  # an invalid row, whose report is held back
    tasks += Playing(env, chat).start("train", 1)
    await asyncio.sleep(0.2)
    await agent.abort(Args())
    assert {outcome(await task) for task in tasks} == {("failed", "aborted", 0.0)}


async def test_abort_with_nothing_in_flight_does_nothing() -> None:
    await agent.abort(Args())
    await agent.abort(None)


def test_eval_splits_are_those_of_the_eval_files(tmp_path: Path) -> None:
    for name, split in (("renamed.jsonl", "eval"), ("train.jsonl", "train"), ("both.jsonl", "train")):
        (tmp_path / name).write_text("\n" + json.dumps({"metadata": {"split": split}}) + "\n")
    train, renamed, both = (str(tmp_path / name) for name in ("train.jsonl", "renamed.jsonl", "both.jsonl"))
    assert eval_splits(Args(prompt_data=train, eval_prompt_data=["days", f"{renamed}@[0:20]"])) == {"eval"}
    assert eval_splits(Args(prompt_data=train, eval_prompt_data=["a", renamed, "b", both])) == {"eval"}
    assert eval_splits(Args(prompt_data=train, eval_prompt_data=["b", both])) == frozenset()
    assert eval_splits(Args(prompt_data=train, eval_prompt_data=["b", both], eval_num_gpus=4)) == {"train"}
    assert eval_splits(Args(eval_prompt_data=["a", str(tmp_path / "gone.jsonl")])) == {"gone"}
    assert eval_splits(None) == {"eval"}
    assert eval_splits(Args(prompt_data=str(tmp_path / "eval.jsonl"))) == frozenset()
