"""An env that takes all it can get: it gets its share, and its neighbour its own."""

from __future__ import annotations

import asyncio
import errno

import pytest

from agent_env.sandbox import EnvLost
from tests.hostile.conftest import LIMITS, Arena
from tests.sandbox.doubles import PROBE, CallFailed, call, run, write_env

pytestmark = pytest.mark.integration

BROKEN = (ValueError, StopIteration, ConnectionError, EnvLost)
"""What a call meets whose env dies under it."""


async def test_fork_bomb_stops_at_its_limit(arena: Arena) -> None:
    made = await run(
        arena.env,
        """
        import os, time
        value = [0, ""]
        while value[0] < 200:
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
                value[0] += 1
            except OSError as error:
                value[1] = type(error).__name__
                break
        """,
    )
    if arena.tier == "landlock":
        assert made == [0, "PermissionError"]
    else:
        assert made[0] <= LIMITS.processes
        assert made[1] == "BlockingIOError"


async def test_thread_bomb_stops_at_its_limit(arena: Arena) -> None:
    made = await run(
        arena.env,
        """
        import threading, time
        value = 0
        try:
            while value < 2000:
                threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
                value += 1
        except (RuntimeError, MemoryError):
            pass
        """,
    )
    assert made < 2000


async def test_memory_bomb_is_refused(arena: Arena) -> None:
    with pytest.raises(CallFailed, match=r"MemoryError|^$"):
        await call(arena.env, "run", code="x = bytearray(1 << 31)")
    assert await run(arena.env, "value = 'still here'") == "still here"


async def test_memory_of_many_processes_is_counted_together(arena: Arena) -> None:
    if not any("cgroups" in text for text in arena.sandbox.tier.gives):
        pytest.skip(f"tier {arena.tier}: no cgroups can be written here, memory is limited for each process only")
    code = """
    import os, time
    pids = []
    for _ in range(8):
        pids.append(os.fork())
        if pids[-1] == 0:
            held = bytearray(os.urandom(1 << 20) * 100)
            time.sleep(3)
            os._exit(0)
    value = sum(os.waitpid(pid, 0)[1] == 9 for pid in pids)
    """
    try:
        killed = await run(arena.env, code)
    except BROKEN:  # the kernel chose the server, or (cgroup v2) ended all together
        assert await asyncio.wait_for(arena.env.wait(), 20) == "killed: out of memory (256 MiB)"
    else:
        assert killed >= 6


async def test_disk_filler_stops_at_its_limit(arena: Arena) -> None:
    code = """
    import os, tempfile, time
    top = tempfile.gettempdir()
    value = [0, ""]
    try:
        for number in range(100):
            with open(f"{top}/{number}", "wb") as file:
                for _ in range(4):
                    value[0] += file.write(bytes(1 << 20))
        time.sleep(20)
    except OSError as error:
        value[1] = error.errno
    """
    if arena.tier == "landlock":
        with pytest.raises(BROKEN):
            await run(arena.env, code)
        assert "wrote more than 16 MiB" in await asyncio.wait_for(arena.env.wait(), 10)
    else:
        written, number = await run(arena.env, code)
        assert written <= LIMITS.tmp_mib << 20
        assert number == errno.ENOSPC


async def test_shared_memory_is_no_way_around_the_limit(arena: Arena) -> None:
    code = """
    import mmap
    value, held = 0, []
    try:
        while value < 8192:
            held.append(mmap.mmap(-1, 256 << 20))
            value += 256
    except (OSError, MemoryError):
        pass
    """
    assert await run(arena.env, code) <= 4 * LIMITS.memory_mib


async def test_descriptor_hoarder_stops_at_its_limit(arena: Arena) -> None:
    opened = await run(
        arena.env,
        """
        held = []
        try:
            while len(held) < 10000:
                held.append(open("/dev/null"))
        except OSError:
            pass
        value = len(held)
        held.clear()
        """,
    )
    assert opened < LIMITS.open_files


async def test_cpu_burner_is_ended(arena: Arena) -> None:
    spec = write_env(arena.spec.folder.parent / "burner", PROBE, name="burner")
    burner = await arena.sandbox.deploy(spec, episode_id="burner")
    try:
        with pytest.raises(BROKEN):
            await call(burner, "run", code="while True: pass")
        assert await asyncio.wait_for(burner.wait(), 20) == "killed: it used up its 2 s of CPU time"
    finally:
        await burner.kill()


async def test_endless_output_is_bounded(arena: Arena) -> None:
    await run(
        arena.env,
        """
        import os, threading
        def shout():
            while True:
                os.write(1, b"A" * 65536)
        threading.Thread(target=shout, daemon=True).start()
        """,
    )
    for _ in range(10):
        assert await asyncio.wait_for(run(arena.neighbour, "value = 1"), 5) == 1
        await asyncio.sleep(0.05)
    assert 0 < len(arena.env.output) <= LIMITS.output_kib << 10


async def test_busy_env_does_not_starve_its_neighbour(arena: Arena) -> None:
    await run(
        arena.env,
        """
        import threading
        def burn():
            while True:
                pass
        for _ in range(8):
            threading.Thread(target=burn, daemon=True).start()
        """,
    )
    for number in range(10):
        assert await asyncio.wait_for(run(arena.neighbour, f"value = {number}"), 5) == number
