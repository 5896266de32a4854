"""What the official server gets wrong outside its protocol: what it imports, one-sided frame limits, dead hooks."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from websockets.exceptions import ConnectionClosed

from agent_env.openenv.protocol import MAX_MESSAGE_BYTES
from tests.openenv.doubles import World, adding_app, ask, call, open_ws, serving


def test_the_server_loads_no_web_ui_and_no_mcp_framework() -> None:
    """Trap 17: those took seconds and a hundred mebibytes, whoever used them or not."""
    code = "import sys; from agent_env.openenv import build_app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"gradio", "fastmcp", "mcp", "pandas", "numpy", "torch", "docker", "huggingface_hub", "openai"}


@pytest.mark.integration
async def test_a_frame_over_the_limit_ends_its_own_session_with_1009_and_nothing_else() -> None:
    """Trap 18: the limit is one, told, and the same both ways; what a tool returns over it is an error of the tool."""
    world = World()
    async with serving(adding_app(world)) as address, open_ws(address) as other, open_ws(address) as one:
        await ask(other, "reset")
        await ask(one, "reset")
        big = await call(one, "size", n=MAX_MESSAGE_BYTES)
        assert big["observation"]["error"]["error_type"] == "execution_error"
        assert not big["done"]
        await one.send(
            json.dumps({"type": "step", "data": {"type": "call_tool", "tool_name": "x" * MAX_MESSAGE_BYTES}})
        )
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(one.recv(), 20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        assert (await call(other, "add", n=1))["observation"]["error"] is None
    await world.gone()


def test_start_and_stop_hang_on_the_lifespan_alone() -> None:
    """Trap 19: hooks like router.on_startup have come and gone between versions of the framework below."""
    app = adding_app(World())
    assert not getattr(app.router, "on_startup", [])
    assert not getattr(app.router, "on_shutdown", [])
    assert app.router.lifespan_context is not None
