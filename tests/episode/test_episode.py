"""One env, one turn: an episode's whole life."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_env.env import Env, tool
from agent_env.episode import END_TURN_TOOL, EpisodeFailed, ErrorKind, Failure, Outcome, Prompt
from agent_env.sandbox.interface import EnvInstance, Verification, VerifierFailed

from .conftest import Make
from .doubles import AGENT, DEPLOY, PROMPT, VERIFY, Counter, FakeSandbox, Heard, make_task, step


def counter(sandbox: FakeSandbox) -> Counter:
    serves = sandbox.instance.serves
    assert isinstance(serves, Counter)
    return serves


async def test_plays_from_deploy_to_score(make: Make, sandbox: FakeSandbox, heard: Heard) -> None:
    episode = make()
    assert await episode.start() == Prompt(0, "Count to ten.", "You count.")
    result = await episode.call("add", {"amount": 7})
    assert (result.text, result.error) == ("the counter is at 7", None)
    assert await episode.end_turn("done") == Outcome(0.7, {"check": 0.7})
    assert episode.done
    await episode.close()
    assert sandbox.instance.killed == 1
    assert heard.kinds == ["deployed", "turn_opened", "call", "turn_ended", "scored", "closed"]
    assert heard.data("call")["result"] == "the counter is at 7"
    assert heard.data("turn_ended") == {"turn": 0, "response": "done"}


async def test_one_connection_carries_the_whole_turn(make: Make, sandbox: FakeSandbox) -> None:
    episode = make()
    await episode.start()
    for _ in range(5):
        await episode.call("add", {"amount": 1})
    assert sandbox.instance.connections == 1


async def test_offers_the_envs_tools_and_end_turn_but_no_hidden_one(make: Make) -> None:
    episode = make()
    await episode.start()
    assert [tool.name for tool in episode.tools] == ["add", "take", "fail", "wait", "end_turn"]
    assert episode.tools[-1] is END_TURN_TOOL
    assert episode.tools[0].description == "Add to the counter."
    assert episode.tools[0].input_schema["required"] == ["amount"]


@pytest.mark.parametrize("name", ["sumbit", "", "peek"])
async def test_unknown_or_hidden_tool_is_answered_with_the_offered_names(
    make: Make, sandbox: FakeSandbox, name: str
) -> None:
    episode = make()
    await episode.start()
    result = await episode.call(name, {})
    assert result.error is ErrorKind.UNKNOWN_TOOL
    assert result.message.endswith("the tools are: add, take, fail, wait, end_turn")
    assert (await episode.call("add", {"amount": 1})).error is None


@pytest.mark.parametrize(
    "value", ["[0,0,0]", [True, False], ["1"], [1.0], '{"a":1}', 10**30, None, {"a": {"b": []}}, "é\u2028\x00"]
)
async def test_arguments_reach_the_env_unchanged(make: Make, sandbox: FakeSandbox, value: Any) -> None:
    episode = make()
    await episode.start()
    assert (await episode.call("take", {"value": value})).error is None
    assert counter(sandbox).seen == [value]
    assert repr(counter(sandbox).seen[0]) == repr(value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud800", nested(100_000), 10**5000],
    ids=["nan", "inf", "surrogate", "deep", "digits"],
)
async def test_arguments_that_json_cannot_carry_are_the_models_error(
    make: Make, sandbox: FakeSandbox, value: Any
) -> None:
    episode = make()
    await episode.start()
    result = await episode.call("take", {"value": value})
    assert result.error is ErrorKind.INVALID_ARGUMENTS
    assert result.message.startswith("take: the arguments hold ")
    assert counter(sandbox).seen == []
    assert (await episode.call("add", {"amount": 1})).error is None


async def test_tools_own_error_text_is_kept(make: Make) -> None:
    episode = make()
    await episode.start()
    result = await episode.call("fail", {"message": "no such file: a.txt"})
    assert (result.error, result.message) == (ErrorKind.EXECUTION, "no such file: a.txt")


@pytest.mark.parametrize("arguments", [{}, {"amount": "3"}, {"amount": True}, {"amount": 1, "by": 2}])
async def test_arguments_that_the_tool_refuses_are_the_models_error(make: Make, arguments: Any) -> None:
    episode = make()
    await episode.start()
    result = await episode.call("add", arguments)
    assert result.error is ErrorKind.INVALID_ARGUMENTS
    assert "argument" in result.message


async def test_late_call_times_out_and_the_env_stays(make: Make, sandbox: FakeSandbox) -> None:
    episode = make()
    await episode.start()
    result = await episode.call("wait", {"seconds": 30}, timeout=0.05)
    assert result.error is ErrorKind.TIMEOUT
    assert result.message == "wait did not answer within 0.05 s"
    assert sandbox.instance.killed == 0
    assert (await episode.call("add", {"amount": 4})).text == "the counter is at 4"
    assert await episode.end_turn("") == Outcome(0.4, {"check": 0.4})


async def test_env_that_died_between_calls_is_a_transport_error_with_its_last_words(
    make: Make, sandbox: FakeSandbox
) -> None:
    episode = make()
    await episode.start()
    sandbox.instance.die("killed: out of memory (1024 MiB)", "MemoryError")
    await asyncio.wait_for(episode.lost.wait(), 5)
    result = await episode.call("add", {"amount": 1})
    assert result.error is ErrorKind.TRANSPORT
    assert result.message == (
        "env 'counter': it ended: killed: out of memory (1024 MiB); the end of its output:\nMemoryError"
    )
    assert episode.lost_reason == result.message


async def test_env_that_dies_in_a_call_is_a_transport_error(make: Make, sandbox: FakeSandbox, heard: Heard) -> None:
    episode = make()
    await episode.start()
    call = asyncio.create_task(episode.call("wait", {"seconds": 30}, timeout=20))
    await asyncio.sleep(0.05)
    sandbox.instance.die("killed by signal 9")
    result = await asyncio.wait_for(call, 5)
    assert result.error is ErrorKind.TRANSPORT
    assert "killed by signal 9" in result.message
    with pytest.raises(EpisodeFailed):
        await episode.end_turn("")
    await episode.close()
    assert heard.kinds.count("failed") == 1


async def test_dead_env_cannot_be_scored(make: Make, sandbox: FakeSandbox, heard: Heard) -> None:
    async def unreachable(instance: EnvInstance, verification: Verification) -> Any:
        raise VerifierFailed("ConnectionRefusedError")

    sandbox.verifies = unreachable
    episode = make()
    await episode.start()
    sandbox.instance.die("exit status 7")
    with pytest.raises(EpisodeFailed, match="exit status 7") as failed:
        await episode.end_turn("done")
    assert failed.value.reason is Failure.ENV_LOST
    assert heard.data("failed")["reason"] == "env_lost"
    await episode.close()
    assert heard.kinds[-1] == "closed"


async def test_a_verifier_does_not_go_on_waiting_for_an_env_that_died(make: Make, sandbox: FakeSandbox) -> None:
    ended = asyncio.Event()

    async def waits_for_ever(instance: EnvInstance, verification: Verification) -> Any:
        try:
            sandbox.instance.die("killed by signal 9")
            await asyncio.Event().wait()
        finally:
            ended.set()

    sandbox.verifies = waits_for_ever
    episode = make()
    await episode.start()
    with pytest.raises(EpisodeFailed, match="killed by signal 9") as failed:
        await asyncio.wait_for(episode.end_turn("done"), 20)  # verify_timeout is 60
    assert failed.value.reason is Failure.ENV_LOST
    assert ended.is_set()


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([{"score": float("nan")}], "row 0 has a score that can't be used: nan"),
        ([{"score": None}], "row 0 has a score that can't be used: None"),
        ([{"score": "1"}], "row 0 has a score"),
        ([{"score": 1, "weight": "heavy"}], "row 0 has a weight"),
        ({"score": 1}, "must return a list of row dicts"),
        ([1.0], "must return a list of row dicts"),
        (None, "must return a list of row dicts"),
    ],
)
async def test_rows_that_are_no_score_leave_the_episode_unscored(
    make: Make, sandbox: FakeSandbox, rows: Any, why: str
) -> None:
    async def verify(instance: EnvInstance, verification: Verification) -> Any:
        return rows

    sandbox.verifies = verify
    episode = make()
    await episode.start()
    with pytest.raises(EpisodeFailed, match="step 'check'") as failed:
        await episode.end_turn("done")
    assert failed.value.reason is Failure.UNSCORED
    assert why in str(failed.value)


async def test_raising_verifier_leaves_the_episode_unscored(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.verifies = None
    episode = make()
    await episode.start()
    with pytest.raises(EpisodeFailed, match="the verifier raised") as failed:
        await episode.end_turn("done")
    assert failed.value.reason is Failure.UNSCORED
    with pytest.raises(EpisodeFailed, match="the verifier raised"):
        await episode.end_turn("again")


async def test_verifier_is_given_code_run_and_time(make: Make, sandbox: FakeSandbox) -> None:
    seen: list[Verification] = []

    async def verify(instance: EnvInstance, verification: Verification) -> Any:
        seen.append(verification)
        return [{"result": True}]

    sandbox.verifies = verify
    episode = make(verify_timeout=7)
    await episode.start()
    await episode.end_turn("my answer")
    assert seen == [
        Verification(
            code="def verify(mcp_url): return []\n",
            filename="artifacts/check/verify.py",
            run={"turns": [{"prompt_id": None, "message": {"text": "Count to ten."}, "reply": {"text": "my answer"}}]},
            mcp_path="/mcp",
            timeout=7,
        )
    ]


async def test_failed_deploy_says_why(make: Make, sandbox: FakeSandbox, heard: Heard) -> None:
    sandbox.refuse = "counter"
    episode = make()
    with pytest.raises(EpisodeFailed, match="step 'env': env 'counter' ended while starting: exit status 3") as failed:
        await episode.start()
    assert failed.value.reason is Failure.DEPLOY_FAILED
    await episode.close()
    assert heard.kinds == ["failed", "closed"]


async def test_cancelled_deploy_leaves_nothing(make: Make, sandbox: FakeSandbox, heard: Heard) -> None:
    sandbox.deploy_seconds = 30
    episode = make()
    start = asyncio.create_task(episode.start())
    await asyncio.sleep(0.02)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    await episode.close()
    assert sandbox.instances == []
    assert heard.kinds == ["closed"]


async def test_deploy_that_comes_through_after_the_close_ends_at_once(make: Make, sandbox: FakeSandbox) -> None:
    sandbox.deploy_seconds = 0.05
    episode = make()
    start = asyncio.create_task(episode.start())
    await asyncio.sleep(0.01)
    await episode.close()
    with pytest.raises(EpisodeFailed, match="the episode was closed meanwhile"):
        await start
    assert sandbox.instance.killed == 1


async def test_cancelled_call_leaves_the_episode_playable(make: Make, sandbox: FakeSandbox) -> None:
    episode = make()
    await episode.start()
    call = asyncio.create_task(episode.call("wait", {"seconds": 30}))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert episode.phase == "idle"
    assert (await episode.call("add", {"amount": 2})).text == "the counter is at 2"


async def test_close_is_idempotent_and_survives_its_callers_cancellation(make: Make, sandbox: FakeSandbox) -> None:
    episode = make()
    await episode.start()
    first = asyncio.create_task(episode.close())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.gather(episode.close(), episode.close())
    assert sandbox.instance.killed == 1
    assert episode.phase == "closed"


async def test_phase_says_what_is_going_on(make: Make) -> None:
    episode = make()
    assert episode.phase == "new"
    start = asyncio.create_task(episode.start())
    await asyncio.sleep(0)
    assert episode.phase == "deploying"
    await start
    assert episode.phase == "idle"
    call = asyncio.create_task(episode.call("wait", {"seconds": 0.05}))
    await asyncio.sleep(0)
    assert episode.phase == "calling wait"
    await call


async def test_episode_cannot_be_played_before_its_start(make: Make) -> None:
    with pytest.raises(RuntimeError, match="has not been started"):
        await make().call("add", {})


async def test_setup_steps_run_before_the_first_prompt(make: Make, sandbox: FakeSandbox) -> None:
    config = step(
        "apply_server_config",
        "config",
        env_id="counter",
        directives=[{"service": "counter", "uri": "urn:test:start-at/v1", "args": {"count": 5}}],
    )
    episode = make(make_task(DEPLOY, config, AGENT, PROMPT, VERIFY))
    await episode.start()
    assert await episode.end_turn("") == Outcome(0.5, {"check": 0.5})


async def test_env_that_is_never_called_is_scored_as_it_stands(make: Make) -> None:
    episode = make()
    await episode.start()
    assert await episode.end_turn("I give up") == Outcome(0.0, {"check": 0.0})


async def test_tool_named_end_turn_is_refused_by_name(make: Make, sandbox: FakeSandbox) -> None:
    class Ends(Env):
        @tool
        def end_turn(self) -> str:
            """End it."""
            return ""

    sandbox.serves = {"counter": Ends}
    with pytest.raises(EpisodeFailed, match="offers a tool named 'end_turn'"):
        await make().start()
