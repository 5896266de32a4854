"""Code that means harm, in a container: it is contained, and a neighbour's episode goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.sandbox import EnvInstance, EnvLost
from agent_env.sandbox.docker import DockerSandbox

from .envs import PROBE, get, make_env, run_inside

pytestmark = pytest.mark.docker


@pytest.fixture
async def pair(box: DockerSandbox, tmp_path: Path) -> AsyncIterator[tuple[EnvInstance, EnvInstance]]:
    """The hostile env, and its neighbour."""
    env = make_env(tmp_path / "probe", PROBE, name="probe")
    hostile, neighbour = await asyncio.gather(*(box.deploy(env, episode_id=name) for name in ("hostile", "neighbour")))
    try:
        yield hostile, neighbour
        assert await get(neighbour, "/still-well") == {"path": "/still-well"}
    finally:
        await asyncio.gather(hostile.kill(), neighbour.kill())


CONTAINED = {
    "fork bomb": (
        "import os, time\nvalue = 0\nwhile value < 500:\n  try:\n    if os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "  except OSError: break\n  value += 1",
        lambda made: made <= 128,
    ),
    "filling /tmp": (
        "f = open('/tmp/x', 'wb')\nfor _ in range(64): f.write(b'a' * 2**20)",
        lambda said: "No space left" in said,
    ),
    "filling /dev/shm": (
        "f = open('/dev/shm/x', 'wb')\nfor _ in range(96): f.write(b'a' * 2**20)",
        lambda said: "No space left" in said,
    ),
    "hoarding descriptors": (
        "import os\nheld = []\nwhile True: held.append(os.dup(0))",
        lambda said: "Too many open files" in said,
    ),
    "writing its own code": ("open('/app/server.py', 'a')", lambda said: "denied" in said or "Read-only" in said),
    "writing our code": ("open('/opt/agentenv/inside.py', 'a')", lambda said: "denied" in said or "Read-only" in said),
    "swapping the socket": (
        "import os; os.rename('/run/agentenv/host.sock', '/tmp/s')",
        lambda said: "Read-only file system" in said or "cross-device" in said,
    ),
    "a network": ("import socket; value = [n for _, n in socket.if_nameindex()]", lambda said: said == ["lo"]),
    "the metadata address": (
        "import socket; socket.create_connection(('169.254.169.254', 80), 3)",
        lambda said: "unreachable" in said,
    ),
    "being root": (
        "import os; value = [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]",
        lambda said: said == [65534, 65534, 65534, [65534]],
    ),
    "capabilities and privileges": (
        "value = [line.split()[1] for line in open('/proc/self/status')"
        " if line.startswith(('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:'))]",
        lambda said: said == ["0" * 16, "0" * 16, "1", "2"],
    ),
    "unshare": (
        "import ctypes, os; lib = ctypes.CDLL(None, use_errno=True); value = lib.unshare(0x10000000)",
        lambda said: said == -1,
    ),
    "mount": (
        "import ctypes; value = ctypes.CDLL(None, use_errno=True).mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        lambda said: said == -1,
    ),
    "others' processes": (
        "import os; value = sorted(open(f'/proc/{p}/cmdline').read() for p in os.listdir('/proc') if p.isdecimal())",
        lambda said: len(said) == 3 and all("agentenv" in line or "server.py" in line for line in said),
    ),
    "the host's environment": (
        "import os; value = [name for name in os.environ if any(part in name for part in ('DOCKER', 'TOKEN', 'SSH'))]",
        lambda said: said == [],
    ),
    "the host's files": (
        "import os; value = [path for path in ('/root/.bashrc', '/home/user', '/etc/shadow') if os.path.exists(path)]",
        lambda said: said == [],
    ),
    "executing what it wrote": (
        "import os; open('/tmp/x', 'w').write('#!/usr/local/bin/python3\\n'); os.chmod('/tmp/x', 0o755);"
        " os.execv('/tmp/x', ['x'])",
        lambda said: "Permission denied" in said,
    ),
}


@pytest.mark.parametrize("what", CONTAINED)
async def test_contained(pair: tuple[EnvInstance, EnvInstance], what: str) -> None:
    code, expected = CONTAINED[what]
    answer: Any = await run_inside(pair[0], code)
    assert expected(answer), answer


async def test_memory_bomb_ends_its_own_env_only(pair: tuple[EnvInstance, EnvInstance]) -> None:
    with pytest.raises(ConnectionError):
        await run_inside(pair[0], "held = [bytearray(2**20) for _ in range(10000)]")
    assert "out of memory" in await pair[0].wait()


async def test_cpu_burner_leaves_the_neighbour_its_share(pair: tuple[EnvInstance, EnvInstance]) -> None:
    burner = asyncio.create_task(run_inside(pair[0], "while True: pass", timeout=60))
    await asyncio.sleep(0.2)
    for _ in range(5):
        await asyncio.wait_for(get(pair[1], "/"), 5)
    burner.cancel()


async def test_flood_of_output_is_kept_small_and_slows_only_itself(pair: tuple[EnvInstance, EnvInstance]) -> None:
    flood = asyncio.create_task(run_inside(pair[0], "import os\nwhile True: os.write(1, b'x' * 65536)", timeout=60))
    for _ in range(10):
        await asyncio.sleep(0.1)
        await asyncio.wait_for(get(pair[1], "/"), 5)
    assert len(pair[0].output) <= 9 * 1024
    flood.cancel()


async def test_nonsense_on_the_hosts_socket_is_dropped_and_in_the_end_not_listened_to(
    pair: tuple[EnvInstance, EnvInstance],
) -> None:
    code = """
import socket
refused = 0
for number in range(400):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    try:
        connection.connect('/run/agentenv/host.sock')
        connection.sendall([b'http\\n', b'control\\n', b'\\xff\\xfe\\n', b'x' * 100][number % 4])
        refused += connection.recv(1) == b''
    except ConnectionResetError:
        refused += 1
    except OSError:
        break
value = refused
"""
    assert 256 <= await run_inside(pair[0], code) < 300
    with pytest.raises((EnvLost, TimeoutError)):
        async with asyncio.timeout(2):
            await pair[0].connect()


async def test_silent_and_half_answers_are_the_callers_to_time(box: DockerSandbox, tmp_path: Path) -> None:
    server = """
import os, socket, threading, time
listener = socket.create_server(("127.0.0.1", int(os.environ["MCP_PORT"])))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\nhalf")
    threading.Thread(target=time.sleep, args=(1000,)).start()
    globals().setdefault("held", []).append(connection)
"""
    instance = await box.deploy(make_env(tmp_path / "half", server, name="half"), episode_id="e")
    with pytest.raises(TimeoutError):
        await run_inside(instance, "", timeout=1)
    await asyncio.wait_for(instance.kill(), 5)
