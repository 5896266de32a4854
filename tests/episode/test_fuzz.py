"""Whatever bytes an env sends, an answer or an error with a name comes of it, and soon."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_env.episode.http import HttpClient, PeerError
from agent_env.episode.jsontext import JsonSyntaxError, JsonValueError, decode, encode
from agent_env.episode.mcp import McpClient, RpcError
from agent_env.episode.sse import SseDecoder

from .servers import Server, request_read

PIECES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Type: text/event-stream\r\n",
        b"Content-Type: application/json\r\n",
        b"\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"data: {}\n\n",
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b"\x00\xff",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PIECES, st.binary(max_size=20)), max_size=10))
def test_any_bytes_end_in_an_answer_or_a_peer_error(pieces: list[bytes]) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_read(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    async def play() -> None:
        client = McpClient(HttpClient(Server(script).connect))
        async with asyncio.timeout(10):
            try:
                await client.list_tools()
            except (PeerError, RpcError):
                pass

    asyncio.run(play())


@given(st.binary())
def test_decoding_any_bytes_gives_a_value_or_one_of_two_errors(data: bytes) -> None:
    try:
        decode(data)
    except (JsonSyntaxError, JsonValueError):
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_what_can_be_encoded_comes_back_equal(value: Any) -> None:
    try:
        text = encode(value)
    except JsonValueError:
        return
    assert decode(text) == value


@given(
    st.lists(st.sampled_from([b"data: a", b"data:b", b"data", b": c", b"event: x", b"\n", b"\r", b"\r\n"])), st.data()
)
def test_an_event_stream_reads_the_same_however_it_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(lines)
    whole = SseDecoder().feed(stream)
    decoder, events, body = SseDecoder(), [], bytearray()
    while len(body) < len(stream):
        size = data.draw(st.integers(1, 7))
        body += stream[len(body) : len(body) + size]
        events += decoder.feed(body)
    assert events == whole
