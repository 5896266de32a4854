"""HTTP to a server that may be hostile: every request ends, in an answer or in an error with a name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent_env.episode import http
from agent_env.episode.http import BadReply, ConnectionLost, HttpClient, PeerError, Response, TooLarge

from .doubles import Script
from .servers import Server, request_read

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answering(*answers: bytes) -> Script:
    """Answers each request with the next of these bytes, then closes."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await request_read(reader)
            writer.write(answer)
            await writer.drain()

    return script


async def ask(script: Script, **options: Any) -> Response:
    client = HttpClient(Server(script).connect)
    try:
        async with asyncio.timeout(10):
            return await client.request("POST", "/mcp", b"{}", **options)
    finally:
        client.close()


async def test_an_answer_comes_with_status_headers_and_body() -> None:
    response = await ask(answering(b"HTTP/1.1 404 Not Found\r\nX-A: 1\r\nContent-Length: 4\r\n\r\nnone"))
    assert (response.status, response.headers["x-a"], bytes(response.body)) == (404, "1", b"none")


async def test_the_request_is_http_with_the_host_that_guards_expect() -> None:
    seen: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request_read(reader))
        writer.write(OK)

    await ask(script, headers=[("Accept", "text/plain")])
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /mcp HTTP/1.1"
    assert set(lines[1:]) == {
        b"Host: 127.0.0.1:18765",
        b"Accept: text/plain",
        b"Content-Type: application/json",
        b"Content-Length: 2",
    }
    assert body == b"{}"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\nX-T: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\n\r\nok",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" + OK,
        b"HTTP/1.1 200\r\ncontent-length:2\r\n\r\nok",
    ],
)
async def test_bodies_come_in_every_way_that_http_has(answer: bytes) -> None:
    assert (await ask(answering(answer))).body == b"ok"


async def test_one_connection_is_kept() -> None:
    server = Server(answering(OK, OK, OK))
    client = HttpClient(server.connect)
    for _ in range(3):
        await client.request("GET", "/")
    client.close()
    assert server.connections == 1


async def test_a_connection_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.01)
    server = Server(answering(OK, OK))
    client = HttpClient(server.connect)
    await client.request("GET", "/")
    await asyncio.sleep(0.03)
    await client.request("GET", "/")
    client.close()
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ],
    ids=["to be closed", "an answer to nothing"],
)
async def test_a_connection_that_is_not_clean_is_not_used_again(answer: bytes) -> None:
    server = Server(answering(answer, answer, answer))
    client = HttpClient(server.connect)
    for _ in range(3):
        assert (await client.request("GET", "/")).body == b"ok"
    client.close()
    assert server.connections == 3


async def test_a_connection_that_was_closed_meanwhile_is_not_used_again() -> None:
    server = Server(answering(OK))  # and the end of the script closes it
    client = HttpClient(server.connect)
    for _ in range(3):
        assert (await client.request("GET", "/")).body == b"ok"
        await asyncio.sleep(0.01)
    client.close()
    assert server.connections == 3


async def test_what_comes_unasked_closes_the_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(0.01)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        await reader.read()

    server = Server(script)
    client = HttpClient(server.connect)
    await client.request("GET", "/")
    await asyncio.sleep(0.05)
    assert (await client.request("GET", "/")).body == b"ok"
    client.close()
    assert server.connections == 2


async def test_a_request_whose_answer_was_lost_is_not_sent_again() -> None:
    asked: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await request_read(reader))

    with pytest.raises(ConnectionLost, match="before it had answered"):
        await ask(script)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionLost),
        (b"HTTP/1.1 200 OK\r\nContent-Len", ConnectionLost),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", ConnectionLost),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", ConnectionLost),
        (b"garbage\r\n\r\n", BadReply),
        (bytes(range(256)), BadReply),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", BadReply),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", BadReply),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", BadReply),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", BadReply),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000, BadReply),
        (b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: x\r\n" % n for n in range(20_000)), BadReply),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", PeerError),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 100, BadReply),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000, BadReply),
    ],
)
async def test_what_is_no_answer_is_an_error_with_a_name(answer: bytes, error: type[PeerError]) -> None:
    with pytest.raises(error):
        await ask(answering(answer))


async def test_an_answer_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 1 << 20)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    with pytest.raises(TooLarge, match="longer than 1 MiB"):
        await ask(script)


async def test_a_server_that_never_answers_is_the_callers_timeout_to_end() -> None:
    closed = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        await reader.read()
        closed.set()

    server = Server(script)
    client = HttpClient(server.connect)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.request("GET", "/")
    await asyncio.wait_for(closed.wait(), 5)


async def test_a_caller_may_have_enough_before_the_end_and_the_connection_is_kept() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwhat\r\n")
        await asyncio.sleep(0.01)
        writer.write(b"4\r\nelse\r\n0\r\n\r\n")
        await request_read(reader)
        writer.write(OK)

    server = Server(script)
    client = HttpClient(server.connect)
    response = await client.request("GET", "/", enough=lambda response: b"what" in response.body)
    assert response.body == b"what"
    assert (await client.request("GET", "/")).body == b"ok"
    client.close()
    assert server.connections == 1


async def test_an_answer_that_goes_on_for_ever_costs_only_its_connection() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwhat\r\n")
        await reader.read()

    server = Server(script)
    client = HttpClient(server.connect)
    for _ in range(2):
        await client.request("GET", "/", enough=lambda response: b"what" in response.body)
    client.close()
    assert server.connections == 2


@pytest.mark.parametrize(("path", "header"), [("/a b", "x"), ("/\r\nX: y", "x"), ("/", "a\r\nX: y"), ("/", "é")])
async def test_a_request_that_would_not_be_http_is_not_sent(path: str, header: str) -> None:
    client = HttpClient(Server(answering(OK)).connect)
    with pytest.raises(BadReply, match="would not be HTTP"):
        await client.request("GET", path, headers=[("X-A", header)])
    client.close()
