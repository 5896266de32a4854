"""One chat request: what counts as an answer, what is sent again, and what never is."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from agent_env.training import chat as chat_module
from agent_env.training.chat import ChatSession, ContextOverflow, Reply, read_reply
from agent_env.training.history import History
from agent_env.training.types import EndReason, RolloutFailed
from tests.training.chat_server import Answer, ChatServer, Drop, Scripted, call, completion
from tests.training.row import PROMPT

GOOD = completion("hello")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_module, "delays", lambda first, cap: iter([0.01] * 10_000))


async def ask(server: ChatServer, timeout: float = 5.0) -> Reply:
    async with server.serve():
        session = ChatSession(server.base_url, tools=[], request_kwargs={})
        try:
            return await session.complete(History(PROMPT), timeout=timeout)
        finally:
            await session.close()


async def failure(*script: Scripted, timeout: float = 5.0) -> tuple[RolloutFailed, int]:
    """How a request failed that is answered so, and how often it was sent."""
    server = ChatServer(*script)
    with pytest.raises(RolloutFailed) as failed:
        await ask(server, timeout)
    return failed.value, len(server.requests)


async def test_the_body_holds_the_request_and_nothing_else() -> None:
    server = ChatServer(GOOD)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    kwargs = {"temperature": 1.0, "stop": ["x"], "messages": "never", "tools": "never"}
    async with server.serve():
        session = ChatSession(server.base_url + "/", tools=tools, request_kwargs=kwargs)
        await session.complete(History(PROMPT), timeout=5)
        await session.close()
    assert server.requests == [
        {"model": "default", "temperature": 1.0, "stop": ["x"], "messages": list(PROMPT), "tools": tools}
    ]


async def test_a_request_that_may_have_been_recorded_is_sent_once() -> None:
    """Case 23: the session takes the request and drops the socket."""
    failed, sent = await failure(Drop(), GOOD)
    assert (failed.reason, sent) == (EndReason.MODEL_ERROR, 1)
    assert "the connection to the session was lost" in str(failed)


async def test_an_answer_cut_in_its_middle_is_not_asked_for_again() -> None:
    """Case 36."""
    failed, sent = await failure(Answer(body=GOOD, cut=20), GOOD)
    assert (failed.reason, sent) == (EndReason.MODEL_ERROR, 1)


async def test_no_reply_in_time_is_a_model_timeout_and_not_asked_for_again() -> None:
    failed, sent = await failure(Answer(body=GOOD, delay=30), timeout=0.3)
    assert (failed.reason, sent) == (EndReason.MODEL_TIMEOUT, 1)
    assert "model_timeout, 0.3 s" in str(failed)


@pytest.mark.parametrize(
    "refusal",
    [
        Answer(502, {"error": "backend transport error: ReadTimeout: "}),
        Answer(500, b"Internal Server Error", {"Content-Type": "text/plain", "Connection": "close"}),
        Answer(503, {"error": "no worker"}),
        Answer(503, b"<html>unavailable</html>"),
        Answer(429, {"error": "slow down"}, {"Retry-After": "0"}),
    ],
)
async def test_what_was_not_recorded_is_sent_again(refusal: Answer) -> None:
    server = ChatServer(refusal, refusal, GOOD)
    assert (await ask(server)).text == "hello"
    assert len(server.bodies) == 3
    assert len(set(server.bodies)) == 1


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (Answer(404, {"error": "session not found: session_id=0f"}), "session not found"),
        (Answer(409, {"error": "truncated generation cannot be extended"}), "truncated generation"),
        (Answer(400, {"error": "rollback failed: discard_count=2 exceeds"}), "rollback failed"),
        (Answer(400, {"object": "error", "message": "bad request", "code": 400}), "bad request"),
        (Answer(422, {"detail": [{"msg": "x"}]}), "HTTP 422"),
        (Answer(401, {"error": {"message": "no key"}}), "no key"),
        (Answer(504, b"<html>gateway timeout</html>"), "HTTP 504"),
        (Answer(502, b"<html>bad gateway</html>"), "HTTP 502"),
        (Answer(502, b""), "(no body)"),
        (Answer(500, {"error": "pretokenized prefix mismatch at 7"}), "prefix mismatch"),
        (Answer(302, b"", {"Location": "http://elsewhere/"}), "HTTP 302"),
        (Answer(200, b"<html>hello</html>"), "no chat completion"),
        (Answer(200, b""), "empty"),
        (Answer(200, b"\xff\xfe"), "no chat completion"),
        (Answer(200, b"data: {}\n\n", {"Content-Type": "text/event-stream"}), "no chat completion"),
        (Answer(204, b""), "HTTP 204"),
    ],
)
async def test_other_answers_end_it_with_their_reason(refusal: Answer, said: str) -> None:
    """Case 36."""
    failed, sent = await failure(refusal, GOOD)
    assert (failed.reason, sent) == (EndReason.MODEL_ERROR, 1)
    assert said in str(failed)


async def test_a_500_that_stays_is_given_up() -> None:
    failed, sent = await failure(Answer(500, b"Internal Server Error"))
    assert (failed.reason, sent) == (EndReason.MODEL_ERROR, 3)


async def test_a_session_that_keeps_failing_is_a_model_error_when_the_time_is_up() -> None:
    failed, sent = await failure(Answer(502, {"error": "backend transport error"}), timeout=0.3)
    assert failed.reason is EndReason.MODEL_ERROR
    assert sent > 3
    assert "backend transport error" in str(failed)


@pytest.mark.parametrize(
    "body",
    [
        {"message": "The input (9 tokens) is longer than the model's context length (8 tokens).", "code": 400},
        {"error": {"message": "Requested token count exceeds the model's maximum context length of 8 tokens."}},
        {"error": {"code": "context_length_exceeded", "message": "too long"}},
    ],
)
async def test_a_used_up_context_is_told_apart(body: dict[str, Any]) -> None:
    server = ChatServer(Answer(400, body))
    with pytest.raises(ContextOverflow):
        await ask(server)
    assert len(server.requests) == 1


async def test_an_aborted_generation_is_told_apart() -> None:
    failed, sent = await failure(Answer(503, {"error": "upstream generation aborted before completion"}))
    assert (failed.reason, sent) == (EndReason.ABORTED, 1)


async def test_a_refused_connection_is_tried_until_the_session_is_there(unused_tcp_port: int) -> None:
    server = ChatServer(GOOD)
    session = ChatSession(f"http://127.0.0.1:{unused_tcp_port}/sessions/x", tools=[])
    asking = asyncio.create_task(session.complete(History(PROMPT), timeout=10))
    await asyncio.sleep(0.1)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", unused_tcp_port)
    assert (await asking).text == "hello"
    await session.close()
    listener.close()


async def test_a_refused_connection_is_a_model_error_when_the_time_is_up(unused_tcp_port: int) -> None:
    session = ChatSession(f"http://127.0.0.1:{unused_tcp_port}/sessions/x", tools=[])
    with pytest.raises(RolloutFailed, match="cannot connect to the session") as failed:
        await session.complete(History(PROMPT), timeout=0.2)
    assert failed.value.reason is EndReason.MODEL_ERROR


async def test_no_shorter_limit_lies_under_the_callers() -> None:
    """Case 35: httpx's own defaults are 5 s to connect and between two reads."""
    listener = socket.create_server(("127.0.0.1", 0))  # takes the connection, and never answers
    session = ChatSession(f"http://127.0.0.1:{listener.getsockname()[1]}/sessions/x", tools=[])
    began = time.monotonic()
    with pytest.raises(RolloutFailed) as failed:
        await session.complete(History(PROMPT), timeout=6.0)
    assert failed.value.reason is EndReason.MODEL_TIMEOUT
    assert time.monotonic() - began > 5.9
    await session.close()
    listener.close()


async def test_proxies_in_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 53."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (await ask(ChatServer(GOOD))).text == "hello"


def reply(**changed: Any) -> bytes:
    message = {"role": "assistant", "content": "x", "tool_calls": None, **changed}
    return json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": [null]}',
        b'{"choices": [{}]}',
        b'{"choices": [{"message": null}]}',
        b'{"choices": {"0": {}}}',
        reply(content=7),
        reply(content=["parts"]),
        reply(role="user"),
        reply(role=None),
        reply(tool_calls="add"),
        reply(tool_calls={"0": call("add")}),
        reply(tool_calls=[None]),
        reply(tool_calls=["add"]),
        reply()[:-1],
        reply(x=float("nan")),
        reply().replace(b'"x"', b"1e999"),
        b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_completion_is_a_typed_error(body: bytes) -> None:
    with pytest.raises(RolloutFailed) as failed:
        read_reply(body)
    assert failed.value.reason is EndReason.MODEL_ERROR
    assert len(str(failed.value)) < 1000


def test_a_completion_is_read() -> None:
    read = read_reply(json.dumps(completion("hi", call("add", {"x": 1}), tokens=7)).encode())
    assert (read.text, read.finish_reason, read.total_tokens) == ("hi", "tool_calls", 7)
    assert [(one.id, one.name, one.arguments) for one in read.tool_calls] == [("call_0", "add", '{"x": 1}')]


@pytest.mark.parametrize("tool_calls", [None, []])
def test_no_tool_calls_are_none(tool_calls: Any) -> None:
    assert read_reply(reply(content=None, tool_calls=tool_calls)).tool_calls == ()


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": None}, {"total_tokens": "7"}, {"total_tokens": True}, 7])
def test_a_missing_usage_is_none(usage: Any) -> None:
    """Case 32."""
    body = json.loads(reply()) | {"usage": usage}
    assert read_reply(json.dumps(body).encode()).total_tokens is None
