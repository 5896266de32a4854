"""The host's end of the socket that an env dials, with a thread-free stand-in for the env."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent_env.sandbox.docker import listener
from agent_env.sandbox.docker.channel import DialledChannel


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[DialledChannel]:
    made = DialledChannel(tmp_path / "s")
    yield made
    made.close()
    assert not (tmp_path / "s").exists()


async def dial(tmp_path: Path, greeting: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s/host.sock")
    writer.write(greeting)
    return reader, writer


@pytest.mark.parametrize("greeting", ["control", "relay"])
async def test_every_c_brings_one_connection(channel: DialledChannel, tmp_path: Path, greeting: str) -> None:
    reader, writer = await dial(tmp_path, f"{greeting}\n".encode())
    assert await asyncio.wait_for(channel.up(), 5) == greeting
    waiting = [asyncio.create_task(channel.connect()) for _ in range(3)]
    assert await reader.readexactly(3) == b"CCC"
    writers = [(await dial(tmp_path, b"http\nhello"))[1] for _ in range(3)]
    connections = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    for connection in connections:
        assert await asyncio.get_running_loop().sock_recv(connection, 100) == b"hello", (
            "nothing is lost to the greeting"
        )
        connection.close()
    for made in (writer, *writers):
        made.close()


async def test_end_of_the_control_connection_ends_all_that_wait(channel: DialledChannel, tmp_path: Path) -> None:
    _, writer = await dial(tmp_path, b"control\n")
    await asyncio.wait_for(channel.up(), 5)
    waiting = asyncio.create_task(channel.connect())
    await asyncio.sleep(0)
    writer.close()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(channel.gone(), 5)
    with pytest.raises(ConnectionError):
        await channel.connect()


async def test_connection_of_a_cancelled_call_goes_to_nobody(channel: DialledChannel, tmp_path: Path) -> None:
    reader, writer = await dial(tmp_path, b"control\n")
    await asyncio.wait_for(channel.up(), 5)
    cancelled = asyncio.create_task(channel.connect())
    await asyncio.sleep(0)
    cancelled.cancel()
    wanted = asyncio.create_task(channel.connect())
    assert await reader.readexactly(2) == b"CC"
    first, first_writer = await dial(tmp_path, b"http\n")
    assert await asyncio.wait_for(first.read(), 5) == b"", "closed"
    _, second_writer = await dial(tmp_path, b"http\n2")
    connection = await asyncio.wait_for(wanted, 5)
    assert await asyncio.get_running_loop().sock_recv(connection, 100) == b"2"
    connection.close()
    for made in (writer, first_writer, second_writer):
        made.close()


@pytest.mark.parametrize("greeting", [b"http\n", b"control", b"\xff\n", b"x" * 200, b"hello\n"])
async def test_what_nobody_asked_for_is_closed(
    channel: DialledChannel, tmp_path: Path, greeting: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "GREETING_TIMEOUT", 0.05)
    reader, writer = await dial(tmp_path, greeting)
    try:
        assert await asyncio.wait_for(reader.read(), 5) == b""
    except ConnectionResetError:
        pass  # it had more to say
    writer.close()


async def test_second_control_connection_is_refused(channel: DialledChannel, tmp_path: Path) -> None:
    _, writer = await dial(tmp_path, b"control\n")
    await asyncio.wait_for(channel.up(), 5)
    reader, second = await dial(tmp_path, b"control\n")
    assert await asyncio.wait_for(reader.read(), 5) == b""
    assert not channel._gone.done()
    writer.close()
    second.close()


async def test_closed_before_anybody_dialled(tmp_path: Path) -> None:
    channel = DialledChannel(tmp_path / "t")
    waiting = asyncio.create_task(channel.up())
    await asyncio.sleep(0)
    channel.close()
    with pytest.raises(ConnectionError):
        await waiting
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(OSError, match="No such file"):
        late.connect(str(tmp_path / "t/host.sock"))
