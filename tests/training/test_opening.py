"""Opening an episode: which server, how long it is waited for, and what is not tried again."""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from typing import Any

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response

from agent_env.training import opening
from agent_env.training.miles import agent
from tests.training.chat_server import END, ChatServer
from tests.training.env_server import Close, EnvServer, EpisodeFails, Frame
from tests.training.playing import outcome, play
from tests.training.row import PROMPT, metadata

CAPACITY = {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "4/4 sessions"}}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "delays", lambda first, cap: iter([0.02] * 10_000))


def status(code: int, **headers: str) -> Response:
    return Response(code, HTTPStatus(code).phrase, Headers(**headers))


async def run(chat: ChatServer, url: str | list[str], **settings: Any) -> dict[str, Any]:
    async with chat.serve():
        return await agent.run(
            base_url=chat.base_url, prompt=list(PROMPT), request_kwargs={}, metadata=metadata(url, **settings)
        )


async def test_room_is_waited_for_within_reset_timeout() -> None:
    """The budget goes to the server, which queues first come, first served."""
    env = EnvServer()
    await play(env, ChatServer(END), reset_timeout=4.0, call_timeout=2.5)
    path = env.sessions[0].request.path
    assert re.fullmatch(r"/ws\?wait=(3\.9\d\d|4\.000)&call_timeout=2\.500", path)


@pytest.mark.parametrize(
    "trouble",
    [
        Frame(CAPACITY),
        Close(1012, "restarting"),
        Close(None),
        EpisodeFails("deploy_failed", "image not there yet"),
        Frame({"type": "error", "data": {"code": "FACTORY_ERROR", "message": "x"}}),
    ],
)
async def test_what_may_pass_is_tried_again_before_the_first_request(trouble: Exception) -> None:
    def reset(session: Any, data: Any) -> Any:
        if session.number < 2:
            raise trouble

    env = EnvServer(reset=reset)
    result = await play(env, ChatServer(END))
    assert outcome(result) == ("scored", "end_turn", 1.0)
    assert result["agentenv"]["recoveries"] == 0
    assert len(env.sessions) == 3


@pytest.mark.parametrize("code", [500, 502, 503, 429])
async def test_a_proxy_whose_server_is_down_is_tried_again(code: int) -> None:
    env = EnvServer()
    env.refuse = status(code)

    async def mend() -> None:
        await asyncio.sleep(0.2)
        env.refuse = None

    mending = asyncio.create_task(mend())
    assert outcome(await play(env, ChatServer(END))) == ("scored", "end_turn", 1.0)
    assert env.handshakes > 1
    await mending


async def test_no_server_within_reset_timeout_is_a_failure_that_names_it(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    result = await run(ChatServer(END), url, reset_timeout=0.5)
    assert outcome(result) == ("failed", "deploy_failed", 0.0)
    assert f"cannot connect to {url}" in result["agentenv"]["error"]
    assert "reset_timeout, 0.5 s" in result["agentenv"]["error"]


async def test_a_refused_token_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVS_TOKEN", "wrong")
    env = EnvServer(token="right")
    result = await play(env, ChatServer(END), token_var="ENVS_TOKEN", reset_timeout=60.0)
    assert outcome(result) == ("failed", "deploy_failed", 0.0)
    assert "ENVS_TOKEN" in result["agentenv"]["error"]
    assert "wrong" not in str(result)
    assert env.handshakes == 1


async def test_the_token_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENVS_TOKEN", "right")
    result = await play(EnvServer(token="right"), ChatServer(END), token_var="ENVS_TOKEN")
    assert outcome(result) == ("scored", "end_turn", 1.0)


@pytest.mark.parametrize("value", [None, "", "  "])
async def test_a_token_variable_without_a_value_is_named_at_once(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 59."""
    monkeypatch.delenv("ENVS_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("ENVS_TOKEN", value)
    env = EnvServer(token="right")
    result = await play(env, ChatServer(END), token_var="ENVS_TOKEN", reset_timeout=60.0)
    assert outcome(result) == ("failed", "invalid_row", 0.0)
    assert "ENVS_TOKEN" in result["agentenv"]["error"]
    assert "Ray workers" in result["agentenv"]["error"]
    assert env.handshakes == 0


STRANGE = [status(404), status(200), status(301, Location="https://elsewhere/ws")]


@pytest.mark.parametrize("answer", STRANGE)
async def test_what_is_no_openenv_server_is_given_up_long_before_reset_timeout(
    answer: Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "STRANGE_FOR", 0.2)
    env = EnvServer()
    env.refuse = answer
    result = await play(env, ChatServer(END), reset_timeout=60.0)
    assert outcome(result) == ("failed", "deploy_failed", 0.0)
    assert result["agentenv"]["seconds"]["total"] < 5
    assert env.url in result["agentenv"]["error"]


@pytest.mark.parametrize("answer", STRANGE)
async def test_a_proxy_that_has_no_server_for_a_while_is_put_up_with(answer: Response) -> None:
    env = EnvServer()
    env.refuse = answer
    asyncio.get_running_loop().call_later(0.2, setattr, env, "refuse", None)
    assert outcome(await play(env, ChatServer(END))) == ("scored", "end_turn", 1.0)


async def test_a_task_that_the_server_hasnt_is_an_invalid_row() -> None:
    def reset(session: Any, data: Any) -> Any:
        raise EpisodeFails("unknown_task", "unknown split 'train'")

    env = EnvServer(reset=reset)
    result = await play(env, ChatServer(END))
    assert outcome(result) == ("failed", "invalid_row", 0.0)
    assert "write the rows anew" in result["agentenv"]["error"]
    assert len(env.sessions) == 1


@pytest.mark.parametrize(
    ("served", "end"), [("b" * 64, "invalid_row"), ("a" * 64, "end_turn"), ("", "end_turn"), (None, "end_turn")]
)
async def test_a_server_of_another_bundle_is_an_invalid_row(served: Any, end: str) -> None:
    result = await play(EnvServer(bundle=served), ChatServer(END), bundle="a" * 64)
    assert result["agentenv"]["end_reason"] == end


async def test_proxies_in_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 53."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert outcome(await play(EnvServer(), ChatServer(END))) == ("scored", "end_turn", 1.0)


async def test_a_dead_server_is_passed_over_for_its_equal(unused_tcp_port: int) -> None:
    env, dead = EnvServer(), f"http://127.0.0.1:{unused_tcp_port}"
    async with env.serve():
        for _ in range(6):
            result = await run(ChatServer(END), [dead, env.url], reset_timeout=60.0)
            assert outcome(result) == ("scored", "end_turn", 1.0)
            assert result["agentenv"]["seconds"]["total"] < 5


async def test_a_full_server_is_passed_over_for_its_equal() -> None:
    """It would let the rollout wait; its equal has room at once."""

    async def full(session: Any, data: Any) -> None:
        asked = re.search(r"wait=([\d.]+)", session.request.path)
        await asyncio.sleep(float(asked[1]) if asked else 0.0)
        raise Frame(CAPACITY)

    empty, busy = EnvServer(), EnvServer(reset=full)
    async with empty.serve(), busy.serve():
        for _ in range(6):
            result = await run(ChatServer(END), [busy.url, empty.url], reset_timeout=60.0)
            assert outcome(result) == ("scored", "end_turn", 1.0)
            assert result["agentenv"]["seconds"]["total"] < 5
    assert len(empty.sessions) == 6


async def test_the_url_variable_replaces_the_rows_url(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    env, dead = EnvServer(), f"http://127.0.0.1:{unused_tcp_port}"
    async with env.serve():
        monkeypatch.setenv("ENVS_URL", f" {env.url} ,")
        result = await run(ChatServer(END), dead, url_var="ENVS_URL")
        assert outcome(result) == ("scored", "end_turn", 1.0)
        monkeypatch.delenv("ENVS_URL")
        result = await run(ChatServer(END), env.url, url_var="ENVS_URL")
        assert outcome(result) == ("scored", "end_turn", 1.0)


async def test_waiting_is_told_rarely(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait is silent, and a thousand waiting rollouts don't flood the log."""
    monkeypatch.setattr(opening, "FIRST_TOLD", 0.05)
    caplog.set_level(logging.WARNING, "agent_env.training")

    async def slow(session: Any, data: Any) -> None:
        await asyncio.sleep(0.3)

    env, chat = EnvServer(reset=slow), ChatServer(END)
    async with env.serve(), chat.serve():
        row = {"base_url": chat.base_url, "prompt": list(PROMPT), "request_kwargs": {}, "metadata": metadata(env.url)}
        await asyncio.gather(*(agent.run(**row) for _ in range(20)))
    waiting = [record.getMessage() for record in caplog.records if "wait for" in record.getMessage()]
    assert len(waiting) == 1
    assert waiting[0].startswith(f"20 rollouts wait for {env.url}: waiting for room and the deploy")
