"""Envs written with agent_env.env in the namespaces tier: they come up fresh, and leave nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import DeployFailed, EnvLost
from agent_env.sandbox.process import ProcessSandbox
from tests.sandbox.doubles import PROBE, call, descendants, gone, open_files, run, write_env

pytestmark = pytest.mark.integration


async def test_each_env_is_fresh(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    one = await sandbox.deploy(probe, episode_id="one")
    two = await sandbox.deploy(probe, episode_id="two")
    await run(one, "open('/tmp/mark', 'w').close(); count = 1")
    assert await run(one, "import os; value = [os.path.exists('/tmp/mark'), count]") == [True, 1]
    assert await run(two, "import os; value = [os.path.exists('/tmp/mark'), 'count' in globals()]") == [False, False]
    await one.kill()
    await two.kill()


async def test_random_numbers_differ_between_episodes(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    code = "import random, uuid, os; value = [random.random(), str(uuid.uuid4()), os.urandom(8).hex()]"
    envs = [await sandbox.deploy(probe, episode_id=str(number)) for number in range(3)]
    drawn = [await run(env, code) for env in envs]
    for values in zip(*drawn, strict=True):
        assert len(set(values)) == 3
    await asyncio.gather(*(env.kill() for env in envs))


async def test_nothing_of_the_server_is_inherited(
    sandbox: ProcessSandbox, probe: EnvSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_TOKEN", "secret")
    env = await sandbox.deploy(probe, episode_id="e")
    seen = await run(
        env,
        """
        import os
        value = {"environ": dict(os.environ), "fds": {}}
        for fd in os.listdir("/proc/self/fd"):
            try:
                value["fds"][fd] = os.readlink(f"/proc/self/fd/{fd}")
            except OSError:
                pass
        """,
    )
    await env.kill()
    assert "SERVER_TOKEN" not in seen["environ"]
    assert seen["environ"]["HOME"] == "/tmp"
    kinds = sorted(target.split(":")[0] for target in seen["fds"].values())
    # Standard input, two ends of its output's pipe, its server's epoll, the channel, the connection.
    assert kinds == ["/dev/null", "anon_inode", "pipe", "pipe", "socket", "socket"]


async def test_dockerfile_env_and_workdir_hold(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", PROBE, environ={"LEVEL": "7", "MCP_PORT": "1"}, workdir="/srv/app")
    (tmp_path / "e" / "helper.py").write_text("NAME = 'helper'\n")
    instance = await sandbox.deploy(env, episode_id="e")
    seen = await run(
        instance,
        """
        import os, sys, helper
        value = [os.getcwd(), os.environ["LEVEL"], os.environ["MCP_PORT"], helper.__file__, sys.argv, sys.path[0]]
        """,
    )
    await instance.kill()
    assert seen == ["/srv/app", "7", "18765", "/srv/app/helper.py", ["server.py"], "/srv/app"]


async def test_own_modules_are_compiled_once_and_run_in_each_episode(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", f"import helper\n{PROBE}")
    (tmp_path / "e" / "helper.py").write_text("import random\nDRAWN = random.random()\n")
    envs = [await sandbox.deploy(env, episode_id=str(number)) for number in range(2)]
    code = """
    import helper, os
    value = [helper.DRAWN, helper.__cached__, os.path.exists(helper.__cached__)]
    try:
        open(helper.__cached__, "r+")
    except OSError:
        value.append("read-only")
    """
    (one, path, *rest), (two, *_) = [await run(each, code) for each in envs]
    assert one != two
    assert path.startswith("/run/agent-env/bytecode/app/helper.")
    assert rest == [True, "read-only"]
    assert not (tmp_path / "e" / "__pycache__").exists()
    await asyncio.gather(*(each.kill() for each in envs))


async def test_writable_folders_are_its_own(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", PROBE, writable=("/data", "/usr"))
    one, two = [await sandbox.deploy(env, episode_id=str(number)) for number in range(2)]
    await run(one, "import os; os.makedirs('/data/deep'); open('/data/deep/x', 'w').write('1')")
    assert await run(two, "import os; value = os.listdir('/data')") == []
    assert await run(one, "import os; value = [os.getcwd(), os.path.exists('/usr/lib')]") == ["/app", True]
    await asyncio.gather(one.kill(), two.kill())


async def test_another_command_is_executed(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", PROBE, command=("python", "-m", "server"))
    instance = await sandbox.deploy(env, episode_id="e")
    assert await run(instance, "value = __import__('sys').orig_argv[1:]") == ["-m", "server"]
    await instance.kill()


async def test_env_that_exits_at_its_start_tells_why(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", "print('no luck'); raise SystemExit(3)")
    with pytest.raises(DeployFailed, match=r"(?s)'probe' did not come up: exit status 3\nno luck"):
        await sandbox.deploy(env, episode_id="e")


async def test_traceback_of_a_crash_begins_in_the_env(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", "def f():\n    1 / 0\nf()")
    with pytest.raises(DeployFailed) as caught:
        await sandbox.deploy(env, episode_id="e")
    lines = str(caught.value).splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert 'server.py", line 3' in lines[2]
    assert lines[-1] == "ZeroDivisionError: division by zero"


async def test_syntax_error_is_told(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    with pytest.raises(DeployFailed, match="SyntaxError"):
        await sandbox.deploy(write_env(tmp_path / "e", "this is no Python"), episode_id="e")


async def test_env_that_needs_docker_is_refused(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    env = write_env(tmp_path / "e", PROBE, needs_docker="Dockerfile line 3: RUN apt-get install curl")
    with pytest.raises(DeployFailed, match="needs Docker: Dockerfile line 3"):
        await sandbox.deploy(env, episode_id="e")


async def test_env_that_dies_is_lost_with_its_last_words(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    env = await sandbox.deploy(probe, episode_id="e")
    with pytest.raises((ValueError, StopIteration)):  # no answer comes
        await call(env, "run", code="import os; print('last words'); os._exit(7)")
    assert await asyncio.wait_for(env.wait(), 5) == "exit status 7"
    with pytest.raises(EnvLost, match=r"(?s)exit status 7.*last words"):
        await env.connect()
    await env.kill()
    assert await env.wait() == "exit status 7"


async def test_signal_that_ended_it_is_named(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    env = await sandbox.deploy(probe, episode_id="e")
    with pytest.raises((ValueError, StopIteration)):
        await call(env, "run", code="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert await asyncio.wait_for(env.wait(), 5) == "killed by signal SIGSEGV"
    await env.kill()


async def test_orphans_are_collected(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    env = await sandbox.deploy(probe, episode_id="e")
    left = await run(
        env,
        """
        import os, time
        for _ in range(300):  # more than it may have at once
            pid = os.fork()
            if pid == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
            os.waitpid(pid, 0)
        for _ in range(100):
            value = len([p for p in os.listdir("/proc") if p.isdigit()]) - 2
            if value <= 0:
                break
            time.sleep(0.02)
        """,
    )
    await env.kill()
    assert left == 0


async def test_killed_env_leaves_nothing(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    await sandbox.prepare(probe)
    shared, files = descendants(), open_files()
    env = await sandbox.deploy(probe, episode_id="e")
    await run(
        env,
        """
        import os, signal, time
        for number in (1, 2, 15):
            signal.signal(number, signal.SIG_IGN)
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(write, b"up")
                time.sleep(600)
            os._exit(0)
        os.read(read, 2)
        """,
    )
    its = {pid: space for pid, space in descendants().items() if pid not in shared}
    assert len(its) >= 3  # process 1, the server, the daemon
    await env.kill()
    await env.kill()
    assert await gone(its) == set()
    assert open_files() == files


async def test_sixty_four_at_once(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    envs = await asyncio.gather(*(sandbox.deploy(probe, episode_id=str(number)) for number in range(64)))
    values = await asyncio.gather(*(run(env, f"value = {number}") for number, env in enumerate(envs)))
    assert values == list(range(64))
    assert len({env.id for env in envs}) == 64
    before = descendants()
    await asyncio.gather(*(env.kill() for env in envs))
    assert len(await gone(before, 0)) < 64  # the fork servers stay


async def test_cancelled_deploys_leave_nothing(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    await sandbox.prepare(probe)
    shared, files = set(descendants()), open_files()
    chance = random.Random(5)

    async def cancelled(number: int) -> None:
        task = asyncio.ensure_future(sandbox.deploy(probe, episode_id=str(number)))
        await asyncio.sleep(chance.random() * 0.05)
        task.cancel()
        try:
            await (await task).kill()
        except asyncio.CancelledError:
            return

    for _ in range(8):
        await asyncio.gather(*(cancelled(number) for number in range(8)))
    assert set(descendants()) <= shared
    assert open_files() == files
    env = await sandbox.deploy(probe, episode_id="after")
    assert await run(env, "value = 1") == 1
    await env.kill()


async def test_cancelled_first_deploy_leaves_a_sandbox_that_works(sandbox: ProcessSandbox, probe: EnvSpec) -> None:
    for delay in (0.0, 0.02, 0.1, 0.2):
        task = asyncio.ensure_future(sandbox.deploy(probe, episode_id="e"))
        await asyncio.wait([task], timeout=delay)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().kill()
    env = await sandbox.deploy(probe, episode_id="after")
    await env.kill()


async def test_end_of_a_fork_server_loses_its_envs_and_no_others(sandbox: ProcessSandbox, tmp_path: Path) -> None:
    first, second = (write_env(tmp_path / name, PROBE, name=name) for name in ("first", "second"))
    await sandbox.prepare(first)
    servers = descendants()
    one = await sandbox.deploy(first, episode_id="1")
    two = await sandbox.deploy(second, episode_id="2")
    victim = sandbox._prepared[str(first.folder), first.digest].result().server._process.pid
    assert victim in servers
    os.kill(victim, signal.SIGKILL)
    assert "fork server has ended" in await asyncio.wait_for(one.wait(), 5)
    with pytest.raises(EnvLost, match="fork server"):
        await one.connect()
    assert await run(two, "value = 2") == 2
    again = await sandbox.deploy(first, episode_id="3")
    assert await run(again, "value = 3") == 3
    await asyncio.gather(one.kill(), two.kill(), again.kill())


async def test_closing_ends_all(probe: EnvSpec) -> None:
    files = open_files()
    box = ProcessSandbox(tier="namespaces")
    env = await box.deploy(probe, episode_id="e")
    before = descendants()
    await box.close()
    await box.close()
    assert await gone(before) == set()
    with pytest.raises(EnvLost):
        await env.connect()
    with pytest.raises(DeployFailed, match="closed"):
        await box.deploy(probe, episode_id="e")
    assert open_files() <= files
