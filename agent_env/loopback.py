"""An ASGI app on a free loopback port, inside the event loop that is running."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

__all__ = ["serving"]

STOP_SECONDS = 10
"""How long connections may take to close once the server stops."""


class _Server(uvicorn.Server):
    """uvicorn, but the signals stay with the program that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def run_on(self, listener: socket.socket) -> None:
        """Serve until `should_exit`. Raises RuntimeError where uvicorn would end the process."""
        try:
            await self.serve(sockets=[listener])
        except SystemExit as exit:
            raise RuntimeError("the app did not start; its log says why") from exit


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve the app while the block runs; gives its URL. Raises RuntimeError if the app doesn't start.

    Whatever ends the block, the app's shutdown has run when this returns.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listener:
        config = uvicorn.Config(
            app, lifespan="on", log_config=None, access_log=False, timeout_graceful_shutdown=STOP_SECONDS
        )
        server = _Server(config)
        task = asyncio.create_task(server.run_on(listener))
        try:
            while not server.started:
                await asyncio.wait([task], timeout=0.005)
                if task.done():
                    await task  # raises
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.shield(task)
