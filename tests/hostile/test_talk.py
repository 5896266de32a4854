"""An env that doesn't keep to the protocol of its channel: nobody waits for it, or dies with it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from agent_env.sandbox import DeployFailed, EnvLost, Verification
from tests.hostile.conftest import Arena
from tests.sandbox.doubles import descendants, exchange, gone, open_files, write_env

pytestmark = pytest.mark.integration

HEAD = """
import array, os, socket, sys, time
channel = socket.socket(fileno=int(os.environ["AGENTENV_ACCEPT_FD"]))

def accept():
    fds = array.array("i")
    _, extra, _, _ = channel.recvmsg(100, socket.CMSG_SPACE(4))
    for _, _, data in extra:
        fds.frombytes(data)
    return socket.socket(fileno=fds[0])
"""


async def deploy_fails(arena: Arena, source: str, folder: Path, seconds: float = 1.0) -> None:
    """It can't come up; whoever waits gives up, and nothing is left of it."""
    spec = write_env(folder, HEAD + source, name="rude")
    with pytest.raises((TimeoutError, DeployFailed)):
        await asyncio.wait_for(arena.sandbox.deploy(spec, episode_id="rude"), seconds)


@pytest.mark.parametrize(
    "source",
    [
        "time.sleep(600)",
        "channel.send(b'not ready'); time.sleep(600)",
        "channel.close(); time.sleep(600)",
        "channel.send(b'x' * 100000); time.sleep(600)",
        "channel.send(b''); time.sleep(600)",
    ],
)
async def test_env_that_never_comes_up_is_given_up(arena: Arena, source: str, tmp_path: Path) -> None:
    await deploy_fails(arena, source, tmp_path / "rude")


async def test_env_that_passes_descriptors_passes_none(arena: Arena, tmp_path: Path) -> None:
    source = """
mine = os.open("/dev/zero", os.O_RDONLY)
socket.send_fds(channel, [b"ready"], [mine] * 16)
time.sleep(600)
"""
    spec = write_env(tmp_path / "rude", HEAD + source, name="rude")
    env = await arena.sandbox.deploy(spec, episode_id="rude")
    assert not [name for name in open_files() if name.endswith("/dev/zero")]
    await env.kill()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"not HTTP at all", b"not HTTP at all"),
        (
            b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nhalf",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
        ),
        (b"", b""),
    ],
)
async def test_what_it_answers_is_passed_on_as_it_is(
    arena: Arena, answer: bytes, expected: bytes, tmp_path: Path
) -> None:
    source = f"""
channel.send(b"ready")
while True:
    with accept() as sock:
        sock.recv(65536)
        sock.sendall(b"{answer.decode()}")
"""
    spec = write_env(tmp_path / "rude", HEAD + source, name="rude")
    env = await arena.sandbox.deploy(spec, episode_id="rude")
    assert await exchange(await env.connect(), b"GET / HTTP/1.1\r\n\r\n") == expected
    await env.kill()


async def test_env_that_floods_its_channel_is_not_read(arena: Arena, tmp_path: Path) -> None:
    source = """
channel.send(b"ready")
channel.setblocking(False)
sent = 0
try:
    while sent < 1 << 30:
        sent += channel.send(b"x" * 60000)
except BlockingIOError:
    pass
print(sent, flush=True)
time.sleep(600)
"""
    spec = write_env(tmp_path / "rude", HEAD + source, name="rude")
    env = await arena.sandbox.deploy(spec, episode_id="rude")
    async with asyncio.timeout(5):
        while not env.output:
            await asyncio.sleep(0.02)
    assert int(env.output) < 1 << 20
    await env.kill()


async def test_env_that_takes_no_connection_blocks_only_its_caller(arena: Arena, tmp_path: Path) -> None:
    spec = write_env(tmp_path / "rude", HEAD + "channel.send(b'ready'); time.sleep(600)", name="rude")
    env = await arena.sandbox.deploy(spec, episode_id="rude")
    taken: list[socket.socket] = []

    async def take() -> None:
        while True:
            taken.append(await env.connect())

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(take(), 2)
    assert len(taken) < 2000
    for sock in taken:
        sock.close()
    await env.kill()


async def test_env_that_closes_its_channel_later_is_lost(arena: Arena, tmp_path: Path) -> None:
    spec = write_env(tmp_path / "rude", HEAD + "channel.send(b'ready'); channel.close(); time.sleep(600)", name="rude")
    env = await arena.sandbox.deploy(spec, episode_id="rude")
    await asyncio.sleep(0.2)
    with pytest.raises(EnvLost, match="can't be reached"):
        await env.connect()
    before = descendants()
    await env.kill()
    assert len(await gone(before, 0.1)) < len(before)


async def test_env_that_keeps_descriptors_under_way_keeps_no_other_from_passing_any(
    arena: Arena, tmp_path: Path
) -> None:
    """Linux counts those of all processes of one user together, against the sender's limit of open files."""
    source = """
mine, pairs = os.open("/dev/zero", os.O_RDONLY), []
try:
    while len(pairs) < 100:
        pairs.append(socket.socketpair())
        socket.send_fds(pairs[-1][0], [b"x"], [mine] * 200)
except OSError as error:
    print(error, flush=True)
channel.send(b"ready")
time.sleep(600)
"""
    spec = write_env(tmp_path / "rude", HEAD + source, name="rude")
    env = await arena.sandbox.deploy(spec, episode_id="rude")
    code = "def verify(mcp_url):\n    return [{'result': True}]"
    rows = await arena.sandbox.verify(arena.spec, Verification(code=code, filename="v.py"), arena.neighbour.connect)
    assert rows == [{"result": True}]
    await (await arena.sandbox.deploy(arena.spec, episode_id="next")).kill()
    await env.kill()
