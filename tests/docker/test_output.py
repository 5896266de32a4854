"""Frames of the engine's attach stream, over a socket pair."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator

import pytest

from agent_env.sandbox.docker.output import Output


def frame(text: bytes, stream: int = 1) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    theirs.close()


async def test_both_streams_are_joined_without_their_headers_however_they_are_cut(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    output = Output(ours, 1000)
    data = frame(b"one\n") + frame(b"", 2) + frame("zwölf\n".encode(), 2) + frame(b"x" * 300)
    while data:
        cut = random.randint(1, 9)
        theirs.send(data[:cut])
        data = data[cut:]
        await asyncio.sleep(0)
    theirs.close()
    await asyncio.wait_for(output.ended, 5)
    assert output.text == "one\nzwölf\n" + "x" * 300
    output.close()


async def test_only_the_end_is_kept(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    output = Output(ours, 10)
    for number in range(1000):
        theirs.send(frame(f"{number:04}".encode()))
        await asyncio.sleep(0)
    theirs.close()
    await asyncio.wait_for(output.ended, 5)
    assert output.text == "[...] 9709980999"
    output.close()
