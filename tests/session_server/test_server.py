"""Routes, error bodies, aborts and the engines, over the app itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent_env.loopback import serving
from agent_env.training.policies import Refusal, Reply
from agent_env.training.session_server.app import build_session_app
from agent_env.training.session_server.engines import ScriptedEngine, UpstreamEngine
from tests.session_server.doubles import TOOL, USER, Chat, call, says, session, tool_result


async def test_an_answer_has_the_shape_of_sglangs() -> None:
    async with session(says(call(content="let me see"))) as chat:
        body = (await chat.send(USER)).json()
    choice = body["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "let me see"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"x":  1}'}
    assert len(choice["meta_info"]["output_token_logprobs"]) == choice["meta_info"]["completion_tokens"]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_content_is_text_even_without_any() -> None:
    async with session(says(call())) as chat:
        assert (await chat.turn(USER))["content"] == ""


async def test_a_call_of_a_tool_that_is_not_offered_vanishes() -> None:
    async with session(says(call(name="nope", content="hm"))) as chat:
        answer = (await chat.send(USER)).json()["choices"][0]
    assert answer["message"]["tool_calls"] is None
    assert (answer["message"]["content"], answer["finish_reason"]) == ("hm", "stop")


async def test_tool_choice_none_parses_no_call() -> None:
    async with session(says(call())) as chat:
        assert (await chat.turn(USER, tool_choice="none"))["tool_calls"] is None


async def test_a_reply_over_max_tokens_is_cut_and_its_calls_are_gone() -> None:
    async with session(says(call(content="x" * 100))) as chat:
        choice = (await chat.send(USER, max_tokens=5)).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert (choice["message"]["content"], choice["message"]["tool_calls"]) == ("x" * 20, None)


@pytest.mark.parametrize(
    ("content", "max_tokens", "text"),
    [
        ("x" * 4000, None, "is longer than the model's context length (200 tokens)."),
        ("x" * 100, 190, "Requested token count exceeds the model's maximum context length of 200 tokens."),
    ],
)
async def test_a_request_over_the_context_is_refused_unrecorded(
    content: str, max_tokens: int | None, text: str
) -> None:
    async with session(ScriptedEngine(says(Reply("x")), context_length=200)) as chat:
        answer = await chat.send({"role": "user", "content": content}, max_tokens=max_tokens)
        assert answer.status_code == 400
        body = answer.json()
        assert (body["object"], body["type"], body["code"]) == ("error", "BadRequest", 400)
        assert text in body["message"]
        assert (await chat.seen())["records"] == []


async def test_a_failed_request_may_be_sent_again() -> None:
    tries = iter([Refusal(503, {"error": "no worker"}), None])

    def policy(messages: Any, tools: Any, request: Mapping[str, Any]) -> Reply:
        if (refusal := next(tries)) is not None:
            raise refusal
        return Reply("ok")

    async with session(policy) as chat:
        refused = await chat.send(USER)
        assert (refused.status_code, refused.json()) == (503, {"error": "no worker"})
        await chat.turn(USER)
        assert (await chat.seen())["metadata"]["warnings"] == []


async def test_a_policy_that_raises_is_a_500_that_says_so() -> None:
    def policy(messages: Any, tools: Any, request: Any) -> Reply:
        raise KeyError("price")

    async with session(policy) as chat:
        answer = await chat.send(USER)
    assert (answer.status_code, answer.json()) == (500, {"error": "the policy raised KeyError: 'price'"})


async def test_an_unknown_or_deleted_session_is_404() -> None:
    async with session(says(Reply("x"))) as chat:
        assert (await chat.client.delete(chat.path)).status_code == 204
        for answer in (await chat.send(USER), await chat.client.get(chat.path), await chat.client.delete(chat.path)):
            assert answer.status_code == 404
            assert answer.json()["error"].startswith("session not found: session_id=")


async def test_a_body_that_is_not_json_is_400() -> None:
    async with session(says(Reply("x"))) as chat:
        answer = await chat.client.post(f"{chat.path}/v1/chat/completions", content=b"{")
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("invalid JSON body")
        refused = await chat.send(USER, chat_template_kwargs=[1])
        assert (refused.status_code, refused.json()) == (400, {"error": "chat_template_kwargs must be an object"})


@pytest.mark.parametrize(
    "messages",
    [
        [],
        ["go"],
        [USER, {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{oops"}}]}],
    ],
)
async def test_what_breaks_a_template_is_a_plain_500_and_closes_the_connection(messages: list[Any]) -> None:
    async with session(says(Reply("x"))) as chat:
        answer = await chat.send(*messages)
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["connection"] == "close"


async def test_a_session_names_its_policy_and_takes_what_newer_miles_says() -> None:
    engines = {"a": ScriptedEngine(says(Reply("from a"))), "b": ScriptedEngine(says(Reply("from b")))}
    transport = httpx.ASGITransport(build_session_app(engines, strict=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for body, content in (({"evaluation": True, "temperature": 1.0}, "from a"), ({"policy": "b"}, "from b")):
            opened = (await client.post("/sessions", json=body)).json()
            chat = Chat(client, f"/sessions/{opened['session_id']}")
            assert (await chat.turn(USER))["content"] == content
        refused = await client.post("/sessions", json={"policy": "c"})
        assert (refused.status_code, refused.json()) == (400, {"error": "no policy 'c'; this server has a, b"})


async def test_of_two_requests_at_once_only_the_first_to_finish_is_recorded() -> None:
    async with session(ScriptedEngine(says(Reply("one"), Reply("two")), seconds=0.05)) as chat:
        answers = await asyncio.gather(chat.turn(USER), chat.turn(USER))
        seen = await chat.seen()
    assert [answer["content"] for answer in answers] == ["one", "two"]
    assert [record["response"]["choices"][0]["message"]["content"] for record in seen["records"]] == ["one"]
    assert "two requests at once" in seen["metadata"]["warnings"][0]


async def _abort(chat: Chat) -> httpx.Response:
    """Send a request and abort it once it is being generated."""
    turn = asyncio.create_task(chat.send(USER))
    for _ in range(1000):
        if (await chat.client.post("/abort_request", json={"abort_all": True})).json()["aborted"]:
            break
        await asyncio.sleep(0.001)
    return await turn


async def test_an_aborted_generation_is_recorded_with_its_reason() -> None:
    async with session(ScriptedEngine(says(call(content="so far")), seconds=60)) as chat:
        choice = (await _abort(chat)).json()["choices"][0]
        assert (choice["finish_reason"], choice["message"]["tool_calls"]) == ("abort", None)
        assert len((await chat.seen())["records"]) == 1


async def test_an_aborted_generation_can_be_a_503_that_leaves_no_trace() -> None:
    async with session(ScriptedEngine(says(call()), seconds=60), refuse_aborted=True) as chat:
        answer = await _abort(chat)
        assert answer.status_code == 503
        assert answer.json() == {"error": "upstream generation aborted before completion"}
        assert (await chat.seen())["records"] == []


async def test_an_answer_that_comes_after_the_session_is_deleted_is_given_unrecorded() -> None:
    async with session(ScriptedEngine(says(Reply("late")), seconds=0.05)) as chat:
        turn = asyncio.create_task(chat.turn(USER))
        await asyncio.sleep(0.01)
        await chat.client.delete(chat.path)
        assert (await turn)["content"] == "late"


async def test_a_streamed_answer_is_one_chunk() -> None:
    async with session(says(call())) as chat:
        answer = await chat.send(USER, stream=True)
        assert "'stream' is set by" in (await chat.seen())["metadata"]["warnings"][0]
    chunk, done, end = answer.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    delta = json.loads(chunk.removeprefix("data: "))["choices"][0]["delta"]
    assert delta["tool_calls"][0]["function"]["name"] == "look"


def upstream(answers: list[Response], seen: list[dict[str, Any]]) -> Starlette:
    """An OpenAI-compatible endpoint that gives these answers."""

    async def chat(request: Request) -> Response:
        seen.append({"headers": dict(request.headers), "body": await request.json()})
        return answers.pop(0)

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


def completion(message: dict[str, Any], finish_reason: str = "stop") -> Response:
    return JSONResponse({"id": "1", "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}]})


async def test_an_upstream_gets_what_openai_knows_and_its_null_content_becomes_text() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    seen: list[dict[str, Any]] = []
    answers = [
        completion({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"),
        completion({"role": "assistant", "content": "done"}),
    ]
    async with serving(upstream(answers, seen)) as url, session(UpstreamEngine(f"{url}/v1", "m", key="sk-1")) as chat:
        first = await chat.turn(USER, temperature=0.5, top_k=-1)
        await chat.turn(USER, first, tool_result(first))
        assert (await chat.seen())["metadata"]["warnings"] == []
        session_id = chat.path.rpartition("/")[2]
    assert first["content"] == ""
    assert seen[0]["body"] == {"messages": [USER], "tools": [TOOL], "temperature": 0.5, "model": "m"}
    assert seen[0]["headers"]["authorization"] == "Bearer sk-1"
    assert seen[0]["headers"]["x-smg-routing-key"] == session_id


async def test_an_sglang_upstream_gets_every_field() -> None:
    seen: list[dict[str, Any]] = []
    app = upstream([completion({"role": "assistant", "content": "x"})], seen)
    async with serving(app) as url, session(UpstreamEngine(f"{url}/v1", "m", all_fields=True)) as chat:
        await chat.turn(USER, top_k=-1)
    assert (seen[0]["body"]["top_k"], seen[0]["body"]["return_meta_info"]) == (-1, True)


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (JSONResponse({"error": "slow down"}, status_code=429), 429, '{"error":"slow down"}'),
        (PlainTextResponse("<html>", status_code=504), 504, "not JSON: <html>"),
        (PlainTextResponse("<html>"), 502, "not JSON: <html>"),
        (JSONResponse({"choices": []}), 502, "not a chat completion"),
    ],
)
async def test_what_an_upstream_answers_amiss_goes_unrecorded(answer: Response, status: int, text: str) -> None:
    async with serving(upstream([answer], [])) as url, session(UpstreamEngine(f"{url}/v1", "m")) as chat:
        got = await chat.send(USER)
        assert (got.status_code, text in got.text) == (status, True)
        assert (await chat.seen())["records"] == []


async def test_an_upstream_that_is_away_is_a_502() -> None:
    async with session(UpstreamEngine("http://127.0.0.1:9/v1", "m")) as chat:
        answer = await chat.send(USER)
    assert answer.status_code == 502
    assert answer.json()["error"].startswith("backend transport error: ConnectError")
