"""A rollout survives its env: the recorded calls are played again in a fresh one, and the model never notices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_env.training.miles import agent
from tests.training.chat_server import END, Answer, ChatServer, call, completion, histories
from tests.training.env_server import Close, EnvServer, EnvSession, EpisodeFails, Fail, Frame, add, observation
from tests.training.playing import outcome, play
from tests.training.row import PROMPT, metadata

STEPS = [completion(None, call("add", {"x": x}, f"c{x}")) for x in (1, 2, 3)]


def breaking(error: Exception, *, session: int = 0, call: int = 1) -> Any:
    """A tool `add` that breaks at its `call`-th call (from 0) in the `session`-th session; negative: in every one."""

    def tool(state: EnvSession, arguments: dict[str, Any]) -> Any:
        made = sum(name == "add" for name, _ in state.calls) - 1
        if made == call and (session < 0 or state.number == session):
            raise error
        return add(state, arguments)

    return tool


LOSSES = {
    "cut": Close(None),
    "going away": Close(1001),
    "server error": Close(1011, "keepalive ping timeout"),
    "restart": Close(1012, "restarting"),
    "try again": Close(1013),
    "normal": Close(1000),
    "env died": EpisodeFails("env_lost", "the env's process died"),
    "no episode": EpisodeFails("no_episode", "the episode has ended"),
    "transport": Fail("transport_error", "connection refused"),
    "session error": Frame({"type": "error", "data": {"code": "SESSION_ERROR", "message": "lost"}}),
    "no json": Frame("<html>"),
}


@pytest.fixture
async def undisturbed() -> list[list[dict[str, Any]]]:
    """What a session sees of a rollout that nothing happens to."""
    chat = ChatServer(*STEPS, END)
    await play(EnvServer(), chat)
    return histories(chat)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
async def test_a_lost_env_is_replaced_and_the_model_never_notices(
    loss: Exception, undisturbed: list[list[dict[str, Any]]]
) -> None:
    env, chat = EnvServer(tools={"add": breaking(loss)}, reward=lambda s: s.total / 6), ChatServer(*STEPS, END)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["recoveries"] == 1
    assert histories(chat) == undisturbed
    assert [arguments["x"] for name, arguments in env.sessions[1].calls if name == "add"] == [1, 2, 3]
    ids = [session.resets[0]["episode_id"] for session in env.sessions]
    assert len(set(ids)) == 2
    assert result["agentenv"]["episode_id"] == ids[1]


async def test_a_server_that_restarts_is_waited_for(undisturbed: list[list[dict[str, Any]]]) -> None:
    """For a while its port refuses connections."""
    first, second = EnvServer(tools={"add": breaking(Close(1012))}), EnvServer(reward=lambda s: s.total / 6)
    chat = ChatServer(*STEPS, END)
    async with chat.serve():
        async with first.serve():
            port = int(first.url.rpartition(":")[2])
            playing = asyncio.create_task(
                agent.run(base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=metadata(first.url))
            )
            await first.closed.wait()
        await asyncio.sleep(0.3)
        async with second.serve(port):
            result = await playing
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert histories(chat) == undisturbed


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_every_turn_of_a_task_is_replayed(place: int) -> None:
    turns = ("Second?", "Third?")
    script = [
        *(
            completion(None, call("add", {"x": 1}), call("end_turn", {"response": f"r{turn}"}, "ce"))
            for turn in range(2)
        ),
        completion(None, call("add", {"x": 5})),
        END,
    ]
    calm = ChatServer(*script)
    await play(EnvServer(turns=turns), calm)
    env = EnvServer(turns=turns, tools={"add": breaking(Close(None), call=place)}, reward=lambda s: s.total / 7)
    chat = ChatServer(*script)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert histories(chat) == histories(calm)


async def test_a_turn_with_a_system_prompt_of_its_own_is_replayed_alike() -> None:
    turns = ({"prompt": "Second?", "system_prompt": "Now in French."}, "Third?")
    ends = completion(None, call("end_turn", {"response": "r"}, "ce"))
    script = [ends, ends, completion(None, call("add", {"x": 5})), completion(None, call("add", {"x": 2})), END]
    calm, chat = ChatServer(*script), ChatServer(*script)
    await play(EnvServer(turns=turns), calm)
    result = await play(EnvServer(turns=turns, tools={"add": breaking(Close(None))}, reward=lambda s: s.total), chat)
    assert outcome(result) == ("scored", "end_turn", 7.0)
    assert histories(chat) == histories(calm)


async def test_an_env_lost_while_scoring_is_scored_again() -> None:
    def reward(session: EnvSession) -> Any:
        if session.number == 0:
            raise Close(1012, "restarting")
        return session.total / 6

    result = await play(EnvServer(reward=reward), ChatServer(*STEPS, END))
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["recoveries"] == 1


async def test_a_different_answer_in_the_fresh_env_is_not_accepted() -> None:
    def tool(session: EnvSession, arguments: dict[str, Any]) -> Any:
        if session.number == 0 and len(session.calls) == 2:
            raise Close(None)
        return f"{add(session, arguments)} at {session.number} o'clock"

    result = await play(EnvServer(tools={"add": tool}), ChatServer(*STEPS, END))
    assert outcome(result) == ("failed", "env_lost", 0.0)
    error = result["agentenv"]["error"]
    assert "call 1 of 1, add, answered differently" in error
    assert "'total 1 at 0 o'clock' was seen, 'total 1 at 1 o'clock' came" in error.replace('"', "'")


async def test_a_fresh_env_that_begins_differently_is_not_accepted() -> None:
    env = EnvServer(
        tools={"add": breaking(Close(None))}, reset=lambda session, data: {"prompt": f"Prompt {session.number}"}
    )
    result = await play(env, ChatServer(*STEPS, END))
    assert outcome(result) == ("failed", "env_lost", 0.0)
    assert "begins differently" in result["agentenv"]["error"]


async def test_a_task_that_must_not_be_replayed_is_not() -> None:
    env = EnvServer(tools={"add": breaking(Close(None))}, replayable=False)
    result = await play(env, ChatServer(*STEPS, END))
    assert outcome(result) == ("failed", "env_lost", 0.0)
    assert "must not be replayed" in result["agentenv"]["error"]
    assert len(env.sessions) == 1


async def test_a_task_that_must_not_be_replayed_may_begin_again_if_nothing_was_called() -> None:
    """Its env was lost while the model thought about its first reply."""
    env, chat = EnvServer(replayable=False), ChatServer(Answer(body=STEPS[0], delay=0.3), END)
    asyncio.get_running_loop().call_later(0.2, env.cut)
    result = await play(env, chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert len(env.sessions) == 2


async def test_an_answer_to_another_call_is_not_taken_for_this_ones() -> None:
    def add_once(session: EnvSession, arguments: dict[str, Any]) -> Any:
        if session.number == 0:
            raise Frame(observation({"tool_name": "note", "result": "stale", "error": None}))
        return add(session, arguments)

    chat = ChatServer(STEPS[0], END)
    result = await play(EnvServer(tools={"add": add_once}), chat)
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert histories(chat)[-1][3]["content"] == "total 1"


async def test_the_number_of_recoveries_is_bounded() -> None:
    env = EnvServer(tools={"add": breaking(Close(None), session=-1)})
    result = await play(env, ChatServer(*STEPS, END), recover=3)
    assert outcome(result) == ("failed", "env_lost", 0.0)
    assert result["agentenv"]["recoveries"] == 3
    assert len(env.sessions) == 4


async def test_a_call_that_kills_its_env_twice_is_not_tried_a_third_time() -> None:
    env = EnvServer(tools={"add": breaking(EpisodeFails("env_lost", "killed"), session=-1)})
    result = await play(env, ChatServer(*STEPS, END), recover=9)
    assert outcome(result) == ("failed", "env_lost", 0.0)
    assert "the call of add lost its env twice" in result["agentenv"]["error"]
    assert len(env.sessions) == 2


async def test_an_env_lost_during_the_replay_is_replaced_too() -> None:
    def tool(session: EnvSession, arguments: dict[str, Any]) -> Any:
        if session.number == 0 and arguments["x"] == 3:
            raise Close(None)
        if session.number == 1 and arguments["x"] == 2:
            raise Close(1012)
        return add(session, arguments)

    env = EnvServer(tools={"add": tool}, reward=lambda s: s.total / 6)
    result = await play(env, ChatServer(*STEPS, END))
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["recoveries"] == 2


async def test_a_message_too_big_is_not_replayed() -> None:
    """Case 51: 1009 would come again."""
    env = EnvServer(tools={"add": breaking(Close(1009, "too big"))})
    result = await play(env, ChatServer(*STEPS, END))
    assert outcome(result) == ("failed", "env_lost", 0.0)
    assert len(env.sessions) == 1


async def test_a_lost_env_that_no_fresh_one_replaces_is_a_failure() -> None:
    def reset(session: EnvSession, data: Any) -> Any:
        if session.number:
            raise EpisodeFails("deploy_failed", "disk full")

    env = EnvServer(tools={"add": breaking(Close(None))}, reset=reset)
    result = await play(env, ChatServer(*STEPS, END), reset_timeout=1.0)
    assert outcome(result) == ("failed", "env_lost", 0.0)
    assert "disk full" in result["agentenv"]["error"]


async def test_an_unscored_episode_is_not_replayed() -> None:
    def reward(session: EnvSession) -> Any:
        raise EpisodeFails("unscored", "verify raised")

    env = EnvServer(reward=reward)
    assert outcome(await play(env, ChatServer(END))) == ("failed", "unscored", 0.0)
    assert len(env.sessions) == 1
