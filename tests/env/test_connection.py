"""One connection's life, on a transport that only takes notes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent_env.env import server
from agent_env.env.http1 import MAX_HEAD, Request, Response
from agent_env.env.server import Connection

GET = b"GET /%d HTTP/1.1\r\n\r\n"


class Notes(asyncio.Transport):
    """What a connection did with its transport."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reading = True
        self.ended = False
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def transport() -> Notes:
    return Notes()


@pytest.fixture
def seen() -> list[str]:
    """Paths of the requests that were begun."""
    return []


@pytest.fixture
def gate() -> asyncio.Event:
    """Requests are answered once it's set."""
    return asyncio.Event()


@pytest.fixture
def connection(transport: Notes, seen: list[str], gate: asyncio.Event) -> Connection:
    async def handle(request: Request) -> Response:
        seen.append(request.path)
        await gate.wait()
        if request.path == "/broken":
            raise RuntimeError("a bug")
        return Response(200, b"{}")

    made = Connection(handle)
    made.connection_made(transport)
    return made


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("it never came to that")


async def test_one_request_is_handled_at_a_time(
    connection: Connection, transport: Notes, seen: list[str], gate: asyncio.Event
) -> None:
    connection.data_received(GET % 1 + GET % 2)
    await asyncio.sleep(0)
    assert seen == ["/1"]
    gate.set()
    await until(lambda: transport.sent.count(b"200 OK") == 2)
    assert seen == ["/1", "/2"]
    assert not transport.closed


async def test_a_client_that_sends_far_ahead_waits(
    connection: Connection, transport: Notes, gate: asyncio.Event
) -> None:
    connection.data_received(GET % 1)
    connection.data_received(GET % 2 * (MAX_HEAD // 20))
    assert transport.reading
    connection.data_received(GET % 3 * (MAX_HEAD // 20))
    assert not transport.reading
    gate.set()
    await until(lambda: transport.sent.count(b"200 OK") == 1 + 2 * (MAX_HEAD // 20))
    assert transport.reading


async def test_a_client_that_does_not_read_gets_no_more(
    connection: Connection, transport: Notes, seen: list[str], gate: asyncio.Event
) -> None:
    gate.set()
    connection.pause_writing()
    connection.data_received(GET % 1)
    await asyncio.sleep(0)
    assert seen == []
    connection.resume_writing()
    await until(lambda: b"200 OK" in transport.sent)


async def test_a_refused_client_has_time_to_read_why(
    connection: Connection, transport: Notes, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LINGER", 0.01)
    connection.data_received(b"nonsense")
    assert b"400 Bad Request" in transport.sent
    assert transport.ended
    assert not transport.closed
    connection.data_received(GET % 1)
    assert seen == []
    await until(lambda: transport.closed)


async def test_the_end_of_a_connection_cancels_what_it_asked_for(
    connection: Connection, transport: Notes, seen: list[str], gate: asyncio.Event
) -> None:
    connection.data_received(GET % 1)
    await until(lambda: seen == ["/1"])
    connection.connection_lost(None)
    gate.set()
    await asyncio.sleep(0.01)
    assert transport.sent == b""


async def test_a_bug_is_a_500_and_the_connection_goes_on(
    connection: Connection, transport: Notes, gate: asyncio.Event, capfd: pytest.CaptureFixture[str]
) -> None:
    gate.set()
    connection.data_received(b"GET /broken HTTP/1.1\r\n\r\n" + GET % 1)
    await until(lambda: b"200 OK" in transport.sent)
    assert b"500 Internal Server Error" in transport.sent
    assert "RuntimeError: a bug" in capfd.readouterr().err


async def test_a_client_that_says_close_is_closed_after_the_answer(
    connection: Connection, transport: Notes, gate: asyncio.Event
) -> None:
    gate.set()
    connection.data_received(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
    await until(lambda: transport.closed)
    assert b"200 OK" in transport.sent
    assert b"Connection: close" in transport.sent
