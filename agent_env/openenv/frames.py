"""A WebSocket that is read all the time, so that a client that goes away is noticed in the middle of its call.

The frames that arrive meanwhile wait, and are answered in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

from agent_env.openenv.messages import error_frame
from agent_env.openenv.protocol import MAX_MESSAGE_BYTES, Code

__all__ = ["BACKLOG_BYTES", "BACKLOG_FRAMES", "FrameSocket"]

_log = logging.getLogger(__name__)

BACKLOG_FRAMES = 1024
BACKLOG_BYTES = 2 * MAX_MESSAGE_BYTES
"""What may wait for its answer; a client that sends more is closed with 1008."""
FIRST_FRAME_SECONDS = 5.0


class FrameSocket:
    """An accepted WebSocket. `run` drives it; the function it is given calls `next`, `send` and `close`."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self._frames: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._waiting_bytes = 0
        self._closed = False

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` until it returns or the client is gone, whichever is first: then `work` is cancelled.

        Returns when `work` has ended. What `work` raises is logged, told to the client, and closes the socket.
        """
        reader = asyncio.create_task(self._read())
        worker = asyncio.ensure_future(work())
        try:
            await asyncio.wait((reader, worker), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            worker.cancel()
            results = await asyncio.gather(reader, worker, return_exceptions=True)
        overrun, failure = results
        if isinstance(failure, Exception) and not isinstance(failure, WebSocketDisconnect):
            _log.error("a session's WebSocket failed", exc_info=failure)
            await self.refuse(Code.SESSION_ERROR, "internal error: see the server's log", close=1011)
        elif isinstance(overrun, _Overrun):
            await self.refuse(Code.SESSION_ERROR, str(overrun), close=1008)
        elif worker.done() and not worker.cancelled():
            await self.close()

    async def next(self) -> str | bytes:
        """The next frame: text, or the bytes of a binary one."""
        received = await self._frames.get()
        self._waiting_bytes -= len(received)
        return received

    async def first(self) -> None:
        """Await the first frame, at most FIRST_FRAME_SECONDS, and drop it.

        A refusal that crosses a client's first frame on the way is lost on some clients, and read by all after it.
        """
        try:
            async with asyncio.timeout(FIRST_FRAME_SECONDS):
                await self.next()
        except TimeoutError:
            return

    async def send(self, text: str) -> None:
        """Send a text frame. A client that is gone is not told anything."""
        if self._closed:
            return
        try:
            await self._websocket.send_text(text)
        except (WebSocketDisconnect, RuntimeError):  # it left in between: the reader notices too, and ends the work
            self._closed = True

    async def refuse(self, code: str, message: str, *, close: int, **extra: object) -> None:
        """Send an error frame and close with the code `close`."""
        await self.send(error_frame(code, message, **extra))
        await self.close(close, message)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close, once."""
        if self._closed:
            return
        self._closed = True
        try:
            # A close frame's reason has room for 123 bytes.
            await self._websocket.close(code, reason.encode()[:120].decode(errors="ignore"))
        except (WebSocketDisconnect, RuntimeError):
            pass

    async def _read(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self._closed = True
                return
            received: str | bytes = message["text"] if message.get("text") is not None else message["bytes"]
            self._waiting_bytes += len(received)
            self._frames.put_nowait(received)
            if self._frames.qsize() > BACKLOG_FRAMES or self._waiting_bytes > BACKLOG_BYTES:
                raise _Overrun(f"more than {BACKLOG_FRAMES} frames or {BACKLOG_BYTES} bytes wait for an answer")


class _Overrun(Exception):
    pass
