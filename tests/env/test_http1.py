from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.env.http1 import MAX_BODY, MAX_HEAD, BadRequest, Request, RequestParser, json_response

TWO = (
    b"\r\nPOST /mcp?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nX-Y:  z \r\n\r\nabc"
    b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"
)


def parse(*pieces: bytes) -> list[Request]:
    parser, found = RequestParser(), []
    for piece in pieces:
        parser.feed(piece)
        while (request := parser.next()) is not None:
            found.append(request)
    return found


@given(st.lists(st.integers(0, len(TWO)), max_size=8))
def test_requests_are_the_same_however_their_bytes_arrive(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TWO)]
    first, second = parse(*(TWO[start:end] for start, end in itertools.pairwise(edges)))
    assert (first.method, first.path, first.body, first.keep_alive) == ("POST", "/mcp", b"abc", True)
    assert first.headers == {"host": "a", "content-length": "3", "x-y": "z"}
    assert (second.method, second.path, second.body, second.keep_alive) == ("GET", "/", b"", False)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00", 400),  # a TLS hello
        (b"GET / HTTP/1.1\n\n", 400),
        (b"get / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"GET http://a/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),  # a superscript two
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1), 413),
        (b"POST / HTTP/1.1\r\nContent-Length: %s\r\n\r\n" % (b"9" * 5000), 413),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 65 + b"\r\n", 431),
        (b"GET /" + b"a" * MAX_HEAD, 431),
    ],
)
def test_what_is_malformed_or_too_large_is_refused(sent: bytes, status: int) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(sent)
    assert refused.value.status == status


@given(st.binary(max_size=200))
def test_any_bytes_are_waited_on_served_or_refused(sent: bytes) -> None:
    status = None
    try:
        parse(sent, b"\r\n\r\n")
    except BadRequest as refused:
        status = refused.status
    assert status in (None, 400, 411, 413, 431)


@pytest.mark.parametrize(
    ("head", "keep_alive"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: Close\r\n", False),
        (b"GET / HTTP/1.0\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_a_connection_is_kept_as_the_client_says(head: bytes, keep_alive: bool) -> None:
    (request,) = parse(head + b"\r\n")
    assert request.keep_alive is keep_alive


def test_equal_lengths_given_twice_are_one() -> None:
    (request,) = parse(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na")
    assert request.body == b"a"


def test_a_client_that_waits_for_continue_is_told_once() -> None:
    parser = RequestParser()
    parser.feed(b"POST / HTTP/1.1\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")
    assert parser.next() is None
    assert [parser.awaits_continue(), parser.awaits_continue()] == [True, False]
    parser.feed(b"a")
    request = parser.next()
    assert request is not None
    assert request.body == b"a"


def test_a_response_is_framed_by_its_length() -> None:
    assert json_response({"a": "é"}, 400, {"X": "y"}).encode(close=True) == (
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 10\r\nContent-Type: application/json\r\nX: y\r\n"
        b'Connection: close\r\n\r\n{"a":"\xc3\xa9"}'
    )
