"""What the fake episodes of a test did, and servers of them on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.openenv.doubles import World, adding_app, serving


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def address(world: World) -> AsyncIterator[str]:
    """HOST:PORT of a server with room for two envs."""
    async with serving(adding_app(world, max_concurrent_envs=2)) as address:
        yield address


@pytest.fixture
async def http(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with room for one env."""
    async with (
        serving(adding_app(world, max_concurrent_envs=1)) as address,
        httpx.AsyncClient(base_url=f"http://{address}", timeout=20) as client,
    ):
        yield client
