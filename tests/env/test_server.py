"""The three ways a server.py is reached, with real processes and sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.env import client, jsontext

pytestmark = pytest.mark.integration

SERVER = Path(__file__).with_name("doubles.py")
ROOT = Path(__file__).parents[2]
BOUND = 20.0  # seconds: far beyond what anything here takes
CARD = b"GET /.well-known/agent-env.json HTTP/1.1\r\n\r\n"


@pytest.fixture(params=["sync", "async"], autouse=True)
def shelf(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test meets an env without async methods and one with: the second runs on an asyncio loop."""
    monkeypatch.setenv("SHELF", request.param)
    return str(request.param)


@contextlib.contextmanager
def started(pass_fds: tuple[int, ...] = (), **environ: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(SERVER)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SHELF": os.environ.get("SHELF", ""), **environ},
        pass_fds=pass_fds,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=BOUND)


@contextlib.contextmanager
def started_tcp() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server on a TCP port of its own choice, and the port."""
    with started(MCP_HOST="127.0.0.1", MCP_PORT="0") as process:
        assert process.stderr is not None
        found = re.search(r"serving shelf on 127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert found is not None
        yield process, int(found[1])


@pytest.fixture
def tcp() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with started_tcp() as process_and_port:
        yield process_and_port


@contextlib.contextmanager
def accepting(**environ: str) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    host.settimeout(BOUND)
    with host, started((inside.fileno(),), AGENTENV_ACCEPT_FD=str(inside.fileno()), **environ) as process:
        inside.close()
        assert host.recv(1 << 17).partition(b"\n")[0] == b"ready"
        yield process, host


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.settimeout(BOUND)
    return ours, theirs


def passed(host: socket.socket) -> socket.socket:
    ours, theirs = pair()
    with theirs:
        socket.send_fds(host, [b"c"], [theirs.fileno()])
    return ours


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=BOUND)


def answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    response = http.client.HTTPResponse(sock)
    response.begin()
    body = response.read()
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


def post(sock: socket.socket, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    content = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", f"Content-Length: {len(content)}"]
    head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    sock.sendall("\r\n".join([*head, "", ""]).encode() + content)
    status, received, text = answer(sock)
    return status, received, json.loads(text) if text else None


def rpc(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


def open_session(sock: socket.socket) -> str:
    status, headers, _ = post(sock, "/mcp", rpc("initialize", {"protocolVersion": "2025-06-18"}))
    assert status == 200
    return headers["mcp-session-id"]


def call(sock: socket.socket, session: str, tool: str, **arguments: Any) -> str:
    params = {"name": tool, "arguments": arguments}
    return str(post(sock, "/mcp", rpc("tools/call", params), mcp_session_id=session)[2]["result"]["content"][0]["text"])


def end_of(process: subprocess.Popen[str]) -> int:
    return process.wait(timeout=BOUND)


# ---- passed sockets --------------------------------------------------------------------------------------------------


def test_passed_sockets_carry_sessions_to_one_env() -> None:
    with accepting(ENVIRONMENT_NAME="other") as (_, host), passed(host) as first, passed(host) as second:
        session = open_session(first)
        assert call(first, session, "put", item="a") == "1 items"
        assert call(second, session, "put", item="b") == "2 items"
        second.sendall(CARD)
        assert json.loads(answer(second)[2])["name"] == "other"


def test_a_burst_of_passed_sockets_is_served() -> None:
    with accepting() as (_, host), contextlib.ExitStack() as stack:
        pairs = [pair() for _ in range(120)]
        for ours, theirs in pairs:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        for start in range(0, 120, 60):  # several in one message
            socket.send_fds(host, [b"c"], [theirs.fileno() for _, theirs in pairs[start : start + 60]])
        for ours, _ in pairs:
            ours.sendall(CARD)
        assert [answer(ours)[0] for ours, _ in pairs] == [200] * 120


def test_it_introduces_itself_with_its_card_and_an_open_session() -> None:
    host, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    host.settimeout(BOUND)
    with host, started((inside.fileno(),), AGENTENV_ACCEPT_FD=str(inside.fileno())):
        inside.close()
        told = json.loads(host.recv(1 << 17).removeprefix(b"ready\n"))
        with passed(host) as sock:
            sock.sendall(CARD)
            assert json.loads(answer(sock)[2]) == told["card"]
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            session = {"Mcp_Session_Id": told["session"], "Mcp_Protocol_Version": told["version"]}
            status, _, pong = post(sock, "/mcp", ping, **session)
            assert (status, pong["result"]) == (200, {})


def test_something_else_than_a_socket_is_dropped() -> None:
    with accepting() as (_, host), open(os.devnull) as file, passed(host) as sock:
        socket.send_fds(host, [b"c"], [file.fileno()])
        sock.sendall(CARD)
        assert answer(sock)[0] == 200
        with passed(host) as later:
            later.sendall(CARD)
            assert answer(later)[0] == 200


def test_the_end_of_the_passing_socket_is_the_end_of_the_env() -> None:
    with accepting() as (process, host), passed(host) as sock:
        session = open_session(sock)
        sock.sendall(b"POST /mcp HTTP/1.1\r\n")  # in the middle of a request
        host.close()
        assert end_of(process) == 0
        assert session


# ---- dialling out ----------------------------------------------------------------------------------------------------


def test_a_dialling_env_opens_a_connection_for_each_byte_that_asks(tmp_path: Path) -> None:
    path = tmp_path / "host.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(BOUND)
        listener.bind(str(path))
        listener.listen(8)
        with started(AGENTENV_DIAL=str(path)) as process, contextlib.ExitStack() as stack:

            def accepted(greeting: bytes) -> socket.socket:
                sock = stack.enter_context(listener.accept()[0])
                sock.settimeout(BOUND)
                assert sock.recv(len(greeting), socket.MSG_WAITALL) == greeting
                return sock

            control = accepted(b"control\n")
            control.sendall(b"CC")
            first, second = accepted(b"http\n"), accepted(b"http\n")
            session = open_session(first)
            assert call(second, session, "put", item="a") == "1 items"
            control.close()
            assert end_of(process) == 0


def test_a_dialling_env_without_a_host_ends(tmp_path: Path) -> None:
    with started(AGENTENV_DIAL=str(tmp_path / "nobody.sock")) as process:
        assert end_of(process) == 1


# ---- TCP, and HTTP on it ---------------------------------------------------------------------------------------------


def test_a_tcp_server_answers_a_verifier_and_ends_on_sigterm(tcp: tuple[subprocess.Popen[str], int]) -> None:
    process, port = tcp
    with connected(port) as sock:
        call(sock, open_session(sock), "put", item="a")
        assert client.data(f"http://127.0.0.1:{port}/mcp") == {"items": ["a"]}
        process.send_signal(signal.SIGTERM)
        assert end_of(process) == 0


def test_a_verifier_is_told_what_went_wrong(tcp: tuple[subprocess.Popen[str], int]) -> None:
    _, port = tcp
    with connected(port) as sock:
        call(sock, open_session(sock), "put", item="break")
    with pytest.raises(client.DataError, match="no data today"):
        client.get_data(f"http://127.0.0.1:{port}/mcp")
    with pytest.raises(client.DataError, match="Connection refused"):
        client.get_data("http://127.0.0.1:1/mcp")
    with pytest.raises(client.DataError, match="not found"):
        client.get_data(f"http://127.0.0.1:{port}/elsewhere/mcp")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01 hello", 400),
        (b"GET / HTTP/1.1\r\nbroken\r\n\r\n", 400),
        (b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"POST /mcp HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 300_000, 413),
        (b"GET /" + b"a" * 300_000, 431),
    ],
)
def test_malformed_http_is_answered_and_closed(
    tcp: tuple[subprocess.Popen[str], int], sent: bytes, status: int
) -> None:
    with connected(tcp[1]) as sock:
        sock.sendall(sent)
        got, headers, _ = answer(sock)
        assert (got, headers["connection"]) == (status, "close")
        assert sock.recv(1) == b""
    with connected(tcp[1]) as sock:  # and the server serves on
        sock.sendall(CARD)
        assert answer(sock)[0] == 200


def test_requests_sent_ahead_are_answered_in_order(tcp: tuple[subprocess.Popen[str], int]) -> None:
    with connected(tcp[1]) as sock:
        bodies = [jsontext.dumps({"jsonrpc": "2.0", "id": i, "method": "data/get"}) for i in range(1000)]
        sock.sendall(b"".join(b"POST /agentenv HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(b), b) for b in bodies))
        reader = sock.makefile("rb")
        for i in range(1000):
            head = b"".join(iter(reader.readline, b"\r\n"))
            length = re.search(rb"Content-Length: (\d+)", head)
            assert length is not None
            assert json.loads(reader.read(int(length[1])))["id"] == i


def test_a_large_body_passes_both_ways(tcp: tuple[subprocess.Popen[str], int]) -> None:
    with connected(tcp[1]) as sock:
        session = open_session(sock)
        large = "é" * 2_000_000
        assert call(sock, session, "give", what=large) == large


@pytest.mark.parametrize("shelf", ["async"], indirect=True)
def test_the_end_of_a_connection_ends_its_call(tcp: tuple[subprocess.Popen[str], int]) -> None:
    with connected(tcp[1]) as stuck, connected(tcp[1]) as sock:
        session = open_session(sock)
        body = jsontext.dumps(rpc("tools/call", {"name": "wait", "arguments": {"seconds": 3600}}))
        head = f"POST /mcp HTTP/1.1\r\nContent-Length: {len(body)}\r\nMcp-Session-Id: {session}\r\n\r\n"
        stuck.sendall(head.encode() + body)
        assert post(sock, "/agentenv", rpc("data/get"))[0] == 200  # served meanwhile
        stuck.close()
        assert call(sock, session, "put", item="a") == "1 items"


def test_the_traceback_of_a_failed_tool_is_in_the_log_only(tcp: tuple[subprocess.Popen[str], int]) -> None:
    process, port = tcp
    with connected(port) as sock:
        assert call(sock, open_session(sock), "fail", how="break") == "secret.py broke"
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert "RuntimeError: secret.py broke" in process.stderr.read()
