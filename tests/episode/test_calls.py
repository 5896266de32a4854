"""What a tool call comes to, whatever the server answers: a value, the model's error, or a lost env."""

from __future__ import annotations

from typing import Any

import pytest

from agent_env.episode import ErrorKind

from .conftest import Make
from .doubles import FakeSandbox
from .servers import Answer, Peer, json_answer, raw_stream, reply


def error(code: int, message: str) -> Answer:
    return lambda call: json_answer({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}})


def failed(*texts: str) -> Answer:
    return lambda call: {"isError": True, "content": [{"type": "text", "text": text} for text in texts]}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (failed("no such file"), ErrorKind.EXECUTION, "no such file"),
        (failed("one", "two"), ErrorKind.EXECUTION, "one\ntwo"),
        (failed(), ErrorKind.EXECUTION, "the tool failed without a message"),
        (failed(" \n"), ErrorKind.EXECUTION, "the tool failed without a message"),
        (failed("1 validation error for call[add]\na"), ErrorKind.INVALID_ARGUMENTS, None),
        (failed("Error executing tool add: 2 validation errors for addArguments"), ErrorKind.INVALID_ARGUMENTS, None),
        (failed("Input validation error: 'x' is not of type 'integer'"), ErrorKind.INVALID_ARGUMENTS, None),
        (failed("add: argument amount: expected an integer, got null"), ErrorKind.INVALID_ARGUMENTS, None),
        (failed("Error executing tool add: the row has 2 validation errors"), ErrorKind.EXECUTION, None),
        (error(-32602, "Invalid request parameters"), ErrorKind.INVALID_ARGUMENTS, "Invalid request parameters"),
        (error(-32603, "no such row"), ErrorKind.EXECUTION, "no such row"),
        (error(-32603, ""), ErrorKind.EXECUTION, "add failed without a message"),
        (reply('{"content": [], "structuredContent": {"v": NaN}}'), ErrorKind.EXECUTION, None),
        (reply('{"content": [{"type": "text", "text": "\\ud800"}]}'), ErrorKind.EXECUTION, None),
        (lambda call: json_answer(b"<html>oops"), ErrorKind.TRANSPORT, None),
        (
            lambda call: b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops",
            ErrorKind.TRANSPORT,
            None,
        ),
        (lambda call: raw_stream(b""), ErrorKind.TRANSPORT, None),
        (lambda call: b"garbage\r\n\r\n", ErrorKind.TRANSPORT, None),
    ],
)
async def test_what_a_call_comes_to(
    make: Make, sandbox: FakeSandbox, answer: Answer, kind: ErrorKind, message: str | None
) -> None:
    peer = Peer({"tools/call": answer})
    sandbox.serves = {"counter": lambda: peer.serve}
    episode = make()
    await episode.start()
    result = await episode.call("add", {"amount": 1}, timeout=5)
    assert result.error is kind, result
    assert result.message
    assert message is None or result.message == message


@pytest.mark.parametrize("content", [[], [{"type": "image", "data": "", "mimeType": "image/png"}]])
async def test_a_result_without_text_has_empty_text(make: Make, sandbox: FakeSandbox, content: Any) -> None:
    peer = Peer({"tools/call": lambda call: {"content": content, "structuredContent": {"a": 1}}})
    sandbox.serves = {"counter": lambda: peer.serve}
    episode = make()
    await episode.start()
    result = await episode.call("add", {})
    assert (result.error, result.text, list(result.content), result.structured) == (None, "", content, {"a": 1})


async def test_a_server_without_a_card_is_a_plain_mcp_server(make: Make, sandbox: FakeSandbox) -> None:
    peer = Peer({"tools/call": lambda call: {"content": [{"type": "text", "text": "5"}]}}, sse=True)
    sandbox.serves = {"counter": lambda: peer.serve}
    episode = make()
    await episode.start()
    assert (await episode.call("add", {})).text == "5"
