"""Deploying an env as a container, and how it ends."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import DeployFailed, EnvLost, Limits
from agent_env.sandbox.docker import DockerSandbox
from agent_env.sandbox.docker.images import image_tag
from agent_env.sandbox.docker.options import ENV_LABEL, EPISODE_LABEL, OWNER_LABEL
from agent_env.sandbox.owners import this_owner

from .envs import COUNTER, DOCKERFILE, PROBE, get, make_env, request, run_inside

pytestmark = pytest.mark.docker

INTERFACES = "import socket; value = [name for _, name in socket.if_nameindex()]"
LOOPBACK = """
import os, socket
with socket.create_server(("localhost", 4711)) as server:
    socket.create_connection(("localhost", 4711), 5).close()
    found = socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
value = [os.readlink("/proc/self/ns/net"), *(address[4][0] for address in found)]
"""


@pytest.fixture
def counter(tmp_path: Path) -> EnvSpec:
    return make_env(tmp_path / "counter", COUNTER, name="counter")


@pytest.fixture
def probe(tmp_path: Path) -> EnvSpec:
    return make_env(tmp_path / "probe", PROBE, name="probe")


async def test_env_of_ours_dials_the_host_and_has_no_network(box: DockerSandbox, counter: EnvSpec, engine: Any) -> None:
    for _ in range(2):  # the first deploy finds out how it is reached, the second knows
        instance = await box.deploy(counter, episode_id="e1")
        card = await get(instance, "/.well-known/agent-env.json")
        assert card["name"] == "counter"
        found = engine.inspect_container(instance.id)
        assert found["HostConfig"]["NetworkMode"] == "none"
        assert not found["HostConfig"]["PortBindings"], "no port of the host is used, so none can run out"
        labels = found["Config"]["Labels"]
        assert [labels[name] for name in (OWNER_LABEL, EPISODE_LABEL, ENV_LABEL)] == [
            str(this_owner()),
            "e1",
            "counter",
        ]
        await instance.kill()
    assert found["Path"] == "python3", "started by itself, with nothing of ours beside it"


async def test_server_that_binds_a_port_is_reached_without_a_network(box: DockerSandbox, probe: EnvSpec) -> None:
    for _ in range(2):
        instance = await box.deploy(probe, episode_id="e1")
        assert await run_inside(instance, INTERFACES) == ["lo"]
        space, *addresses = await run_inside(instance, LOOPBACK)
        assert space != os.readlink("/proc/self/ns/net"), "not this machine's"
        assert addresses == ["127.0.0.1"], "localhost has its name, though the engine makes no network"
        answers = await asyncio.gather(*(get(instance, f"/{number}") for number in range(8)))
        assert [answer["path"] for answer in answers] == [f"/{number}" for number in range(8)]
        await instance.kill()


async def test_server_in_an_image_without_python3_gets_a_network_of_its_own(
    box: DockerSandbox, tmp_path: Path, engine: Any
) -> None:
    hide = "import os; [os.remove('/usr/local/bin/' + name) for name in ('python', 'python3')]"
    dockerfile = f"""\
FROM agentenv-python:local
WORKDIR /app
COPY . /app
RUN ["python3", "-c", "{hide}"]
ENTRYPOINT ["/usr/local/bin/python{".".join(map(str, __import__("sys").version_info[:2]))}", "server.py"]
"""
    env = make_env(tmp_path / "go", PROBE, name="go", dockerfile=dockerfile)
    instances = [await box.deploy(env, episode_id=f"e{number}") for number in range(2)]
    subnets = set()
    for instance in instances:
        assert await run_inside(instance, INTERFACES) == ["lo", "eth0"]
        metadata = "import socket; socket.create_connection(('169.254.169.254', 80), 2)"
        assert "Error: " in await run_inside(instance, metadata), "the network leads nowhere"
        network = engine.inspect_network(instance.id)
        assert network["Internal"] is True
        subnets.add(network["IPAM"]["Config"][0]["Subnet"])
    assert len(subnets) == 2
    await asyncio.gather(*(instance.kill() for instance in instances))
    assert engine.networks(filters={"label": f"{OWNER_LABEL}={this_owner()}"}) == []


async def test_server_on_the_port_that_its_dockerfile_exposes_is_found(box: DockerSandbox, tmp_path: Path) -> None:
    server = PROBE.replace('int(os.environ["MCP_PORT"])', "8000")
    env = make_env(tmp_path / "fixed", server, name="fixed", dockerfile=DOCKERFILE + "EXPOSE 8000/tcp\n")
    instance = await box.deploy(env, episode_id="e")
    assert await get(instance, "/x") == {"path": "/x"}


async def test_env_that_ends_while_it_starts_is_told_with_what_it_printed(box: DockerSandbox, tmp_path: Path) -> None:
    env = make_env(tmp_path / "broken", "import no_such_module", name="broken")
    with pytest.raises(DeployFailed) as caught:
        await box.deploy(env, episode_id="e")
    assert "env 'broken' ended while it started: exit status 1" in str(caught.value)
    assert "ModuleNotFoundError: No module named 'no_such_module'" in str(caught.value)


async def test_env_that_never_serves_is_told_where_it_should(engine: Any, tmp_path: Path) -> None:
    sandbox = DockerSandbox(start_timeout=3.0)
    await sandbox.start()
    try:
        env = make_env(tmp_path / "mute", "import time; time.sleep(1000)", name="mute")
        with pytest.raises(DeployFailed, match=r"not reached within 3 s; .* port 18765 \(MCP_PORT\)"):
            await sandbox.deploy(env, episode_id="e")
    finally:
        await sandbox.close()


async def test_dockerfile_that_does_not_build_is_told_with_the_end_of_its_output(
    box: DockerSandbox, tmp_path: Path
) -> None:
    run = 'RUN ["python3", "-c", "print(\'step output\'); raise SystemExit(7)"]\n'
    env = make_env(tmp_path / "unbuilt", COUNTER, name="unbuilt", dockerfile=DOCKERFILE + run)
    with pytest.raises(DeployFailed) as caught:
        await box.prepare(env)
    assert "env 'unbuilt': its Dockerfile does not build: " in str(caught.value)
    assert "  step output" in str(caught.value)


async def test_image_by_reference_is_used_and_a_missing_one_named(box: DockerSandbox, counter: EnvSpec) -> None:
    await box.prepare(counter)
    given = dataclasses.replace(counter, name="given", dockerfile=None, image=image_tag(counter))
    instance = await box.deploy(given, episode_id="e")
    assert (await get(instance, "/.well-known/agent-env.json"))["name"] == "counter"
    missing = dataclasses.replace(given, name="missing", image="127.0.0.1:1/no/such:image")
    with pytest.raises(DeployFailed, match=r"env 'missing': .*127\.0\.0\.1:1/no/such:image"):
        await box.deploy(missing, episode_id="e")
    with pytest.raises(DeployFailed, match=r"it has no Dockerfile, and env\.toml names no image"):
        await box.deploy(dataclasses.replace(given, name="neither", image=None), episode_id="e")


async def test_image_that_somebody_removed_is_built_again(box: DockerSandbox, tmp_path: Path, engine: Any) -> None:
    env = make_env(tmp_path / "pruned", COUNTER + f"# {time.time()}", name="pruned")
    await box.prepare(env)
    engine.remove_image(image_tag(env), force=True)
    instance = await box.deploy(env, episode_id="e")
    assert (await get(instance, "/.well-known/agent-env.json"))["name"] == "counter"


async def test_out_of_memory_is_named_once_the_container_has_exited(box: DockerSandbox, probe: EnvSpec) -> None:
    instance = await box.deploy(probe, episode_id="e")
    with pytest.raises(ConnectionError):
        await run_inside(instance, "import os; os.write(1, b'about to\\n'); value = len(bytearray(512 * 2**20))")
    assert await instance.wait() == "killed: out of memory (384 MiB)"
    with pytest.raises(
        EnvLost, match=r"env 'probe' has ended: killed: out of memory \(384 MiB\); it printed:\nabout to"
    ):
        await instance.connect()


async def test_exit_status_and_signal_are_told(box: DockerSandbox, probe: EnvSpec) -> None:
    for code, reason in (
        ("os._exit(3)", "exit status 3"),
        ("os.kill(os.getpid(), 11); import time; time.sleep(9)", "killed by signal 11"),
    ):
        instance = await box.deploy(probe, episode_id="e")
        with pytest.raises(ConnectionError):
            await run_inside(instance, f"import os; {code}")
        assert await instance.wait() == reason


async def test_only_the_end_of_the_output_is_kept(box: DockerSandbox, probe: EnvSpec) -> None:
    instance = await box.deploy(probe, episode_id="e")
    flood = "import os\nfor n in range(400): os.write(1, b'x' * 65535 + b'\\n')\nos.write(1, b'the end\\n')"
    await run_inside(instance, flood, timeout=60)
    for _ in range(100):
        if instance.output.endswith("the end\n"):
            break
        await asyncio.sleep(0.1)
    assert instance.output.endswith("the end\n")
    assert len(instance.output) < 9 * 1024


async def test_one_killed_container_of_several_loses_only_its_own_episode(
    box: DockerSandbox, probe: EnvSpec, engine: Any
) -> None:
    instances = await asyncio.gather(*(box.deploy(probe, episode_id=f"e{number}") for number in range(4)))
    calls = [asyncio.create_task(run_inside(env, "import time; time.sleep(2); value = 1")) for env in instances]
    await asyncio.sleep(0.5)
    await asyncio.to_thread(engine.kill, instances[0].id)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[0], ConnectionError)
    assert results[1:] == [1, 1, 1]
    assert await instances[0].wait() == "killed by signal 9"


async def test_env_that_ignores_signals_is_gone_in_seconds(box: DockerSandbox, probe: EnvSpec, engine: Any) -> None:
    instance = await box.deploy(probe, episode_id="e")
    await run_inside(instance, "import os, time\nif os.fork() == 0: os.setsid(); time.sleep(99999)")
    stuck = asyncio.create_task(run_inside(instance, "import time; time.sleep(99999)", timeout=100))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await instance.kill()
    assert time.monotonic() - began < 3
    await instance.kill()
    with pytest.raises(ConnectionError):
        await stuck
    assert engine.containers(all=True, filters={"name": instance.id}) == []


async def test_orphans_are_collected_so_that_processes_do_not_run_out(box: DockerSandbox, probe: EnvSpec) -> None:
    instance = await box.deploy(probe, episode_id="e")
    breed = """
import os
for _ in range(600):
    if (child := os.fork()) == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
value = len([name for name in os.listdir('/proc') if name.isdecimal()])
"""
    for _ in range(5):
        assert await run_inside(instance, breed, timeout=60) < 40
    assert await run_inside(instance, "value = 'still here'") == "still here"


async def test_anonymous_volumes_go_with_their_container(box: DockerSandbox, tmp_path: Path, engine: Any) -> None:
    env = make_env(tmp_path / "volume", COUNTER, name="volume", dockerfile=DOCKERFILE + 'VOLUME ["/data"]\n')
    before = len(engine.volumes()["Volumes"] or [])
    for _ in range(3):
        await (await box.deploy(env, episode_id="e")).kill()
    assert len(engine.volumes()["Volumes"] or []) == before


async def test_environment_workdir_and_user_of_the_dockerfile_hold(box: DockerSandbox, tmp_path: Path) -> None:
    dockerfile = DOCKERFILE.replace("COPY", "ENV FLAVOUR=sweet\nUSER 1000:1000\nCOPY").replace("/app", "/srv/env")
    env = make_env(tmp_path / "settings", PROBE, name="settings", dockerfile=dockerfile)
    instance = await box.deploy(env, episode_id="e")
    code = "import os; value = [os.environ['FLAVOUR'], os.getcwd(), os.getuid(), os.environ['HOME']]"
    assert await run_inside(instance, code) == ["sweet", "/srv/env", 1000, "/tmp"]


async def test_cancelled_deploys_leave_nothing(box: DockerSandbox, probe: EnvSpec, engine: Any) -> None:
    await (await box.deploy(probe, episode_id="first")).kill()
    for number in range(24):
        task = asyncio.create_task(box.deploy(probe, episode_id=f"e{number}"))
        await asyncio.sleep(0.01 + number * 0.025)
        task.cancel()
        try:
            await (await task).kill()  # it was up just before
        except asyncio.CancelledError:
            pass
    assert engine.containers(all=True, filters={"label": f"{OWNER_LABEL}={this_owner()}"}) == []
    assert box.pending_removals == 0


async def test_limits_go_by_env(engine: Any, probe: EnvSpec) -> None:
    per_env = {"probe": Limits(memory_mib=77, processes=33, tmp_mib=5, open_files=99, cpu_seconds=44)}
    sandbox = DockerSandbox(per_env=per_env, cpus=0.5, warm_verifiers=0)
    await sandbox.start()
    try:
        instance = await sandbox.deploy(probe, episode_id="e")
        host = engine.inspect_container(instance.id)["HostConfig"]
        assert host["Memory"] == host["MemorySwap"] == 77 * 2**20
        assert host["NanoCpus"] == 500_000_000
        code = "import resource as r; value = [r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CPU)[0]]"
        assert await run_inside(instance, code) == [[99, 99], 44]
    finally:
        await sandbox.close()


async def test_half_a_request_and_an_unread_answer_hold_nothing_up(box: DockerSandbox, counter: EnvSpec) -> None:
    instance = await box.deploy(counter, episode_id="e")
    idle = [await instance.connect() for _ in range(20)]
    assert await request(instance, "GET", "/.well-known/agent-env.json")
    await instance.kill()
    for connection in idle:
        connection.close()


async def test_folders_that_an_env_writes_are_empty_private_and_limited(box: DockerSandbox, probe: EnvSpec) -> None:
    env = dataclasses.replace(probe, writable=("/work",))
    first, second = await asyncio.gather(*(box.deploy(env, episode_id=name) for name in ("first", "second")))
    assert await run_inside(first, "import os; open('/work/x', 'w').write('y'); value = os.listdir('/work')") == ["x"]
    assert await run_inside(second, "import os; value = os.listdir('/work')") == []
    fill = "f = open('/work/y', 'wb')\nfor _ in range(32): f.write(b'a' * 2**20)"
    assert "No space left" in await run_inside(first, fill)


async def test_server_with_a_network_that_ends_at_once_is_told(box: DockerSandbox, tmp_path: Path) -> None:
    """An ended container has no address any more, and no address would mean this machine's own loopback."""
    hide = 'RUN ["python3", "-c", "import os; os.remove(\'/usr/local/bin/python3\')"]\n'
    dockerfile = DOCKERFILE.replace("CMD", hide + "CMD").replace('CMD ["python3"', 'CMD ["python"')
    env = make_env(tmp_path / "gone", "raise SystemExit('no licence')", name="gone", dockerfile=dockerfile)
    with pytest.raises(DeployFailed, match="env 'gone' ended while it started: exit status 1; it printed:\nno licence"):
        await box.deploy(env, episode_id="e")
