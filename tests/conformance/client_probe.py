"""Plays a server with the official OpenEnv clients, as their users would.

    client_probe.py URL [--token TOKEN] [--limit N] SCENARIO...

Run by a Python that has `openenv` (0.10.0) or `openenv-core` (0.3.0), and nothing of ours. The last line of output is
a JSON object of scenario -> "" if it holds, else the traceback. The bundle served is `counting`; see its README.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Awaitable
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openenv.core import GenericEnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction
from openenv.core.mcp_client import MCPToolClient

SENDS_HEADERS = "headers" in inspect.signature(EnvClient.__init__).parameters
"""openenv-core 0.3.0 can only send a token in the URL."""

url = token = ""
limit = 0


def client(kind: Any, *, in_url: bool = not SENDS_HEADERS, password: str | None = None, **options: Any) -> Any:
    given = token if password is None else password
    if not given:
        return kind(base_url=url, message_timeout_s=60, **options)
    if in_url:
        parts = urlsplit(url)
        return kind(base_url=urlunsplit(parts._replace(netloc=f"token:{given}@{parts.netloc}")), **options)
    return kind(base_url=url, headers={"Authorization": f"Bearer {given}"}, **options)


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "call_tool", "tool_name": tool, "arguments": arguments}


async def error_of(work: Awaitable[Any]) -> str:
    try:
        result = await work
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError(f"no error, but {result}")


# ---- GenericEnvClient ------------------------------------------------------------------------------------------------


async def generic_async() -> None:
    async with client(GenericEnvClient) as env:
        opened = await env.reset(split="train", index=0, episode_id="mine")
        assert not opened.done
        assert opened.reward is None
        told = opened.observation["metadata"]
        assert told["prompt"] == "Add up to 10."
        assert told["task"]["name"] == "count"
        assert getattr(opened, "metadata", told) == told
        state = await env.state()
        assert (state["episode_id"], state["step_count"]) == ("mine", 0)
        tools = (await env.step({"type": "list_tools"})).observation["tools"]
        assert [tool["name"] for tool in tools] == ["add", "end_turn"]
        assert tools[0]["input_schema"]["properties"]["amount"]["type"] == "integer"
        added = await env.step(call("add", amount=4))
        assert added.observation["result"]["data"] == "4"
        assert not added.done
        unknown = await env.step(call("multiply"))
        assert unknown.observation["error"]["error_type"] == "tool_not_found"
        bad = await env.step(call("add", amount="four"))
        assert bad.observation["error"]["error_type"] == "invalid_args"
        assert not bad.done
        for action in (
            {"type": "call_tool"},
            {**call("add", amount=1), "extra": 1},
            {"tool_name": "add", "arguments": 3},
        ):
            assert "VALIDATION_ERROR" in await error_of(env.step(action))
        assert (await env.state())["step_count"] == 4
        ended = await env.step(call("end_turn", response="4"))
        assert (ended.done, ended.reward) == (True, 0.4)
        assert ended.observation["metadata"]["scores"] == {"score": 0.4}
        after = await env.step(call("add", amount=1))
        assert after.done
        assert after.observation["metadata"]["reason"] == "no_episode"
        again = await env.reset(split="train", index=0)
        assert not again.done
        assert (await env.state())["episode_id"] != "mine"


async def multi_turn() -> None:
    async with client(GenericEnvClient) as env:
        opened = await env.reset(split="train", index=1)
        assert opened.observation["metadata"]["turns"] == 2
        await env.step(call("add", amount=5))
        following = await env.step(call("end_turn", response="5"))
        assert not following.done
        assert following.observation["result"] == {"prompt": "Now to 10.", "system_prompt": "You count."}
        assert (await env.state())["turn"] == 1
        await env.step(call("add", amount=5))
        assert (await env.step(call("end_turn", response="10"))).reward == 1.0


async def tasks_by_seed() -> None:
    async with client(GenericEnvClient) as env:
        names = [(await env.reset(seed=seed)).observation["metadata"]["task"]["name"] for seed in (0, 1, 2, 0)]
        assert names == ["count", "talk", "count", "count"]
        unknown = await env.reset(split="train", index=99)
        assert unknown.done
        assert unknown.observation["metadata"]["reason"] == "unknown_task"


def generic_sync() -> None:
    with client(GenericEnvClient).sync() as env:
        sync_episode(env)
    if SENDS_HEADERS:  # 0.3.0 knows only the wrapper
        with client(GenericEnvClient) as env:
            sync_episode(env)


def sync_episode(env: Any) -> None:
    assert not env.reset(split="train", index=0).done
    assert env.step(call("add", amount=10)).observation["result"]["data"] == "10"
    assert env.state()["step_count"] == 1
    ended = env.step(call("end_turn"))
    assert (ended.done, ended.reward) == (True, 1.0)


class CountingClient(EnvClient):
    """What `openenv init` makes users write: a client with types of its own."""

    def _step_payload(self, action: int) -> dict[str, Any]:
        return call("add", amount=action)

    def _parse_result(self, payload: dict[str, Any]) -> StepResult:
        observation = payload.get("observation", {})
        result = observation.get("result") or {}
        return StepResult(observation=result.get("data"), reward=payload.get("reward"), done=payload.get("done", False))

    def _parse_state(self, payload: dict[str, Any]) -> int:
        return int(payload["step_count"])


async def subclass() -> None:
    async with client(CountingClient) as env:
        await env.reset(split="train", index=0)
        assert (await env.step(3)).observation == "3"
        assert (await env.step(4)).observation == "7"
        assert await env.state() == 2


# ---- MCPToolClient ---------------------------------------------------------------------------------------------------


async def mcp_async() -> None:
    async with client(MCPToolClient) as env:
        opened = await env.reset(split="train", index=0)
        assert opened.observation.metadata["prompt"] == "Add up to 10."
        await mcp_calls(env)


async def mcp_in_steps() -> None:
    """As openenv-core 0.3.0 does: every call a step message."""
    env = client(MCPToolClient)
    env.use_production_mode = False
    async with env:
        await env.reset(split="train", index=0)
        await mcp_calls(env)


async def mcp_calls(env: Any) -> None:
    tools = await env.list_tools()
    assert [tool.name for tool in tools] == ["add", "end_turn"]
    assert tools[0].input_schema["required"] == ["amount"]
    assert await env.has_tool("add")
    assert not await env.has_tool("multiply")
    assert await env.call_tool("add", amount=1) == "1"
    assert "RuntimeError" in await error_of(env.call_tool("multiply"))
    assert "RuntimeError" in await error_of(env.call_tool("add", amount="one"))
    stepped = await env.step(CallToolAction(tool_name="add", arguments={"amount": 2}))
    assert stepped.observation.result["data"] == "3"
    listed = await env.step(ListToolsAction())
    assert [tool.name for tool in listed.observation.tools] == ["add", "end_turn"]
    ended = await env.step(CallToolAction(tool_name="end_turn", arguments={"response": "3"}))
    assert (ended.done, ended.reward) == (True, 0.3)


def mcp_sync() -> None:
    with client(MCPToolClient).sync() as env:
        env.reset(split="train", index=0)
        assert [tool.name for tool in env.list_tools()] == ["add", "end_turn"]
        assert env.call_tool("add", amount=2) == "2"
        ended = env.step(CallToolAction(tool_name="end_turn", arguments={}))
        assert (ended.done, ended.reward) == (True, 0.2)


# ---- OpenEnv's harness, as TRL's async GRPO drives it ----------------------------------------------------------------


def harness() -> None:
    """A rollout is a session made with the group's number as its seed and an id of its own: nothing else says which
    task it is. A rollout that ends without the last end_turn has no reward."""
    from openenv.core.harness import HarnessRunLimits, MCPHarnessAdapter, ModelStepResult
    from openenv.core.llm_client import LLMResponse, ToolCall

    def rollout(group: int, number: int, amounts: list[int], end: bool) -> tuple[str, Any]:
        session = harness_session(group, f"group-{group}-{number}")
        answers = iter([*(("add", {"amount": amount}) for amount in amounts), *([("end_turn", {})] * 2 if end else [])])

        def model_step(messages: Any, tools: Any, sampling: Any) -> Any:
            call = next(answers, None)
            calls = [] if call is None else [ToolCall(id="call_0", name=call[0], args=call[1])]
            response = LLMResponse(content="", tool_calls=calls)
            return ModelStepResult(response=response, prompt_ids=[], completion_ids=[], logprobs=[])

        try:
            played = MCPHarnessAdapter().run_white_box(model_step, session, HarnessRunLimits(max_turns=8))
            assert played.messages[0]["content"]
            return played.messages[0]["content"], session.verify(played.messages).env_reward
        finally:
            session.close()

    assert rollout(0, 0, [4], end=True) == ("Add up to 10.", 0.4)
    assert rollout(0, 1, [5, 5], end=True) == ("Add up to 10.", 1.0)
    assert rollout(1, 0, [2], end=True) == ("Add up to 5.", 0.2)
    assert rollout(1, 1, [2], end=False) == ("Add up to 5.", None)


def harness_session(seed: int, episode_id: str) -> Any:
    from openenv.core.env_server.mcp_types import Tool
    from openenv.core.harness import StepEnvSessionAdapter

    return StepEnvSessionAdapter(
        client(GenericEnvClient),
        seed=seed,
        episode_id=episode_id,
        tool_specs=[Tool(name=name, description="", input_schema={"type": "object"}) for name in ("add", "end_turn")],
        action_builder=lambda name, arguments: call(name, **arguments),
        initial_messages_builder=lambda opened, task: [
            {"role": "user", "content": opened.observation["metadata"]["prompt"]}
        ],
    )


# ---- several sessions, limit, token, restart -------------------------------------------------------------------------


async def play(amount: int) -> Any:
    async with client(GenericEnvClient) as env:
        await env.reset(split="train", index=0)
        for _ in range(3):
            await env.step(call("add", amount=amount))
        return (await env.step(call("end_turn"))).reward


async def concurrent_sessions() -> None:
    rewards = await asyncio.gather(*(play(amount) for amount in range(limit)))
    assert rewards == [min(1.0, 3 * amount / 10) for amount in range(limit)], rewards
    if hasattr(GenericEnvClient, "new_session"):
        async with client(GenericEnvClient) as env:
            sibling = await env.new_session()
            await asyncio.gather(env.reset(split="train", index=0), sibling.reset(split="train", index=0))
            await env.step(call("add", amount=1))
            assert (await sibling.step(call("add", amount=2))).observation["result"]["data"] == "2"
            await sibling.close()


async def full_server() -> None:
    held = [client(GenericEnvClient) for _ in range(limit)]
    for env in held:
        await env.connect()
        await env.reset(split="train", index=0)
    for _ in range(20):
        extra = client(GenericEnvClient)
        await extra.connect()
        assert "CAPACITY_REACHED" in await error_of(extra.reset(split="train", index=0))
        await extra.close()
    if SENDS_HEADERS:
        mcp = client(MCPToolClient)
        assert "capacity" in await error_of(mcp.connect())
        await mcp.close()
    await asyncio.gather(*(env.close() for env in held))
    assert await play(1) == 0.3


async def with_token() -> None:
    for kind in (GenericEnvClient, MCPToolClient):
        async with client(kind, in_url=True) as env:
            assert not (await env.reset(split="train", index=0)).done
        if SENDS_HEADERS:
            async with client(kind, in_url=False) as env:
                assert not (await env.reset(split="train", index=0)).done
        for wrong in ("", "wrong"):
            env = client(kind, password=wrong)
            told = await error_of(env.connect())
            assert "401" in told or "Unauthorized" in told, told
            await env.close()


async def restart() -> None:
    """The server is restarted while a client has an episode: it hears of it, and the next one plays."""
    env = client(GenericEnvClient)
    await env.connect()
    await env.reset(split="train", index=0)
    await env.step(call("add", amount=1))
    print("playing", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        told = await env.step(call("add", amount=1))
    except Exception as error:
        print(f"told by {type(error).__name__}: {error}")
    else:  # 0.10.0 opens a session anew without a word; the answer must be unmistakable
        assert told.done
        assert told.observation["metadata"]["reason"] == "no_episode"
    await env.close()
    assert await play(2) == 0.6


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        generic_async,
        generic_sync,
        multi_turn,
        tasks_by_seed,
        subclass,
        mcp_async,
        mcp_in_steps,
        mcp_sync,
        harness,
        concurrent_sessions,
        full_server,
        with_token,
        restart,
    )
}


def main() -> None:
    global url, token, limit
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("scenarios", nargs="+", choices=SCENARIOS)
    parser.add_argument("--token", default="")
    parser.add_argument("--limit", type=int, default=4)
    given = parser.parse_args()
    url, token, limit = given.url, given.token, given.limit
    found = {}
    for name in given.scenarios:
        try:
            done = SCENARIOS[name]()
            if inspect.isawaitable(done):
                asyncio.run(done)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
