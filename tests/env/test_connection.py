"""One connection's life, on a socket pair and a reactor that the test turns by hand."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from agent_env.env.connection import Connection
from agent_env.env.http1 import MAX_BODY, MAX_HEAD, Request, Response
from agent_env.env.reactor import Reactor

GET = b"GET /%d HTTP/1.1\r\n\r\n"
LARGE = b"x" * 4_000_000


class Client:
    """The other end, and what the server saw."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        self.seen: list[str] = []
        self.gate: asyncio.Event | None = None
        """Requests are answered once it's set; None: at once."""
        self.connection = Connection(self.reactor, theirs, self.handle)

    async def handle(self, request: Request) -> Response:
        self.seen.append(request.path)
        if self.gate is not None:
            await self.gate.wait()
        if request.path == "/wait":
            await asyncio.sleep(0)
        if request.path == "/broken":
            raise RuntimeError("a bug")
        return Response(200, LARGE if request.path == "/large" else b"{}")

    def send(self, data: bytes) -> None:
        """Send it all, the reactor taking part."""
        while data:
            try:
                data = data[self.sock.send(data) :]
            except BlockingIOError:
                pass
            self.reactor.poll()
        for _ in range(3):
            self.reactor.poll()

    def received(self) -> bytes:
        """What has come."""
        found = b""
        while True:
            self.reactor.poll()
            try:
                data = self.sock.recv(1 << 20)
            except BlockingIOError:
                return found
            if not data:
                return found
            found += data

    def at_end(self) -> bool:
        """Whether the server has said that nothing more comes."""
        try:
            return self.sock.recv(1) == b""
        except BlockingIOError:
            return False


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    yield made
    made.connection.close()
    made.sock.close()
    made.reactor.close()


async def on_loop(client: Client) -> asyncio.Event:
    """Let the client's requests wait, on the running loop, for what is returned."""
    client.reactor.loop = asyncio.get_running_loop()
    client.gate = asyncio.Event()
    return client.gate


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_are_answered_in_order_on_one_connection(client: Client) -> None:
    client.send(GET % 1 + GET % 2)
    assert client.received().count(b"200 OK") == 2
    client.send(GET % 3)
    assert client.received().count(b"200 OK") == 1
    assert client.seen == ["/1", "/2", "/3"]
    assert not client.connection.closed


async def test_one_request_is_in_progress_at_a_time(client: Client) -> None:
    gate = await on_loop(client)
    client.send(GET % 1 + GET % 2)
    await settle()
    assert client.seen == ["/1"]
    gate.set()
    await settle()
    assert client.received().count(b"200 OK") == 2
    assert client.seen == ["/1", "/2"]


async def test_a_client_that_sends_far_ahead_waits_in_its_own_socket(client: Client) -> None:
    gate = await on_loop(client)
    client.send(GET % 1 + GET % 2 * (MAX_HEAD // 10))
    client.sock.send(GET % 3)
    for _ in range(5):
        client.reactor.poll()
    left = client.connection._sock.recv(1 << 20, socket.MSG_PEEK)
    assert left == GET % 3
    gate.set()
    count = 0
    for _ in range(MAX_HEAD):  # two turns of the loop a request
        await asyncio.sleep(0)
        count += client.received().count(b"200 OK")
    assert count == 2 + MAX_HEAD // 10


def test_a_client_that_does_not_read_is_served_no_more_until_it_does(client: Client) -> None:
    client.send(b"GET /large HTTP/1.1\r\n\r\n" + GET % 2)
    assert client.seen == ["/large"]
    got = client.received()
    assert client.seen == ["/large", "/2"]
    assert len(got) > len(LARGE)
    assert got.endswith(b"\r\n\r\n{}")


def test_a_refused_client_can_read_why_whatever_it_still_sends(client: Client) -> None:
    client.send(b"nonsense")
    client.send(b"x" * 1_000_000)
    assert b"400 Bad Request" in client.received()
    assert client.at_end()
    client.send(GET % 1)
    assert client.seen == []
    assert not client.connection.closed
    client.sock.close()
    client.reactor.poll()
    assert client.connection.closed


def test_a_refused_client_that_never_stops_is_cut_off(client: Client) -> None:
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        client.send(b"nonsense" + b"x" * (MAX_BODY + 4_000_000))
    assert client.connection.closed


@pytest.mark.parametrize("sent", [b"", b"GET", GET % 1, b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc"])
def test_a_client_that_leaves_is_forgotten(client: Client, sent: bytes) -> None:
    client.send(sent)
    client.sock.close()
    client.reactor.poll()
    client.reactor.poll()
    assert client.connection.closed


async def test_the_end_of_a_connection_cancels_what_it_asked_for(client: Client) -> None:
    gate = await on_loop(client)
    client.send(GET % 1)
    await settle()
    assert client.seen == ["/1"]
    task = client.connection._task
    client.sock.close()
    client.reactor.poll()
    await settle()
    assert client.connection.closed
    assert task is not None
    assert task.cancelled()
    gate.set()


def test_a_bug_is_a_500_and_the_connection_goes_on(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    client.send(b"GET /broken HTTP/1.1\r\n\r\n" + GET % 1)
    got = client.received()
    assert b"500 Internal Server Error" in got
    assert b"200 OK" in got
    assert "RuntimeError: a bug" in capfd.readouterr().err


def test_waiting_without_a_loop_is_a_bug_that_is_told(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    client.send(b"GET /wait HTTP/1.1\r\n\r\n")
    assert client.connection.closed
    assert "something waited in an env that has no async method" in capfd.readouterr().err


def test_a_client_that_says_close_is_closed_after_the_answer(client: Client) -> None:
    client.send(b"GET /large HTTP/1.1\r\nConnection: close\r\n\r\n" + GET % 2)
    got = client.received()
    assert b"Connection: close" in got
    assert got.endswith(LARGE)
    assert client.at_end()
    assert client.connection.closed
    assert client.seen == ["/large"]


def test_a_body_is_asked_for_when_its_sender_waits(client: Client) -> None:
    client.send(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    assert client.received() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"a")
    assert b"200 OK" in client.received()
