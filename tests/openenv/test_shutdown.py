"""A plain `uvicorn.run` in a process of its own, under signals."""

from __future__ import annotations

import asyncio
import json
import signal
import socket as socket_module
import subprocess
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from agent_env.openenv.hostlimits import check_descriptors, descriptors_needed
from tests.openenv.doubles import ask, call, open_ws

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


class Process:
    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process = process
        self.address = address

    async def report(self, within: float = 20) -> dict:
        """What it says when it has stopped."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), within)
        await asyncio.wait_for(self.process.wait(), within)
        return json.loads(line)


async def answering(port: int) -> None:
    """Await the server's listening."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@asynccontextmanager
async def running(**given):
    with socket_module.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.openenv.fake_server", str(port), json.dumps(given)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)
    try:
        await answering(port)
        yield Process(process, f"127.0.0.1:{port}")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_closes_sockets_with_1012_and_tears_everything_down(sig):
    async with running(max_concurrent_envs=4) as server:
        sockets = [await open_ws(server.address, "/ws?wait=60") for _ in range(6)]
        for socket in sockets[:4]:
            await ask(socket, "reset")
        await sockets[0].send(json.dumps({"type": "step", "data": {"tool_name": "sleep", "arguments": {"n": 600}}}))
        for socket in sockets[4:]:
            await socket.send('{"type": "reset"}')
        await call(sockets[1], "add", n=1)
        server.process.send_signal(sig)
        for socket in sockets:
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), 10)
            assert closed.value.rcvd.code == 1012
        report = await server.report()
        assert (report["live"], report["closed"], report["sandbox_closed"]) == (0, 4, True)
        stderr = await server.process.stderr.read()
        assert b"Traceback" not in stderr, stderr


async def test_a_deploy_and_an_http_call_under_way_do_not_hold_the_exit_up():
    async with running(deploy_seconds=600) as server:
        reader, writer = await asyncio.open_connection(*server.address.split(":"))
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        async with open_ws(server.address) as socket:
            await socket.send('{"type": "reset"}')
            await both_live(server.address)
            server.process.send_signal(signal.SIGTERM)
            report = await server.report()
        assert (report["live"], report["sandbox_closed"]) == (0, True)
        assert b"closed" in await reader.read()
        writer.close()


async def test_teardowns_run_in_parallel_and_those_that_hang_are_left_after_the_timeout():
    async with running(close_seconds=1.0, max_concurrent_envs=8) as server:
        sockets = [await open_ws(server.address) for _ in range(8)]
        for socket in sockets:
            await ask(socket, "reset")
        server.process.send_signal(signal.SIGTERM)
        report = await server.report(within=6)
        assert report["closed"] == 8
    async with running(close_seconds=600.0, shutdown_timeout=0.5) as server:
        async with open_ws(server.address) as socket:
            await ask(socket, "reset")
            server.process.send_signal(signal.SIGTERM)
            report = await server.report()
        assert (report["closed"], report["sandbox_closed"]) == (0, True)


async def test_a_client_that_stalls_in_its_request_does_not_hold_the_exit_up():
    async with running(shutdown_timeout=1.0) as server:
        _, writer = await asyncio.open_connection(*server.address.split(":"))
        writer.write(b"POST /reset HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        await writer.drain()
        await asyncio.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        report = await server.report()
        assert report["sandbox_closed"] is True
        writer.close()


async def test_the_users_own_graceful_timeout_is_kept():
    async with running(shutdown_timeout=1.0, uvicorn={"timeout_graceful_shutdown": 3}) as server:
        server.process.send_signal(signal.SIGTERM)
        assert (await server.report())["sandbox_closed"] is True


async def test_a_second_signal_during_the_teardown_changes_nothing():
    async with running(close_seconds=1.0) as server:
        async with open_ws(server.address) as socket:
            await ask(socket, "reset")
            server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            report = await server.report()
        assert (report["closed"], report["sandbox_closed"]) == (1, True)


async def both_live(address: str) -> None:
    async with asyncio.timeout(10):
        while True:
            if (await status(address))["live"] == 2:
                return
            await asyncio.sleep(0.05)


async def status(address: str) -> dict:
    reader, writer = await asyncio.open_connection(*address.split(":"))
    writer.write(b"GET /status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    reply = await reader.read()
    writer.close()
    return json.loads(reply.partition(b"\r\n\r\n")[2])


def test_more_envs_than_the_file_descriptor_limit_allows_are_refused_at_start():
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "from agent_env.openenv.hostlimits import check_descriptors\n"
        "check_descriptors(50)\n"
        "try: check_descriptors(200)\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "max_concurrent_envs=200" in done.stdout
    assert "ulimit -n" in done.stdout
    assert "lower max_concurrent_envs to 52" in done.stdout


def test_a_usual_limit_allows_a_usual_number_of_envs():
    assert descriptors_needed(50) <= 256
    check_descriptors(8)
