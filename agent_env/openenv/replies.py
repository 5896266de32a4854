"""HTTP on the wire: strict JSON replies, a limit on bodies, and work that ends when its client leaves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_env.openenv.messages import encode
from agent_env.openenv.protocol import MAX_MESSAGE_BYTES

__all__ = ["BodyLimit", "ClientGone", "JsonReply", "while_connected"]

T = TypeVar("T")


class JsonReply(JSONResponse):
    """A JSON body: valid Unicode, null instead of NaN."""

    def render(self, content: Any) -> bytes:
        return encode(content, limit=sys.maxsize).encode()


class BodyLimit:
    """Answers 413 to a request body over MAX_MESSAGE_BYTES, the limit that frames have, and 408 to one that isn't there
    within `seconds`: a client that trickles holds nothing for long."""

    def __init__(self, app: ASGIApp, limit: int = MAX_MESSAGE_BYTES, seconds: float = 120.0) -> None:
        self.app = app
        self._limit = limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received, complete = 0, False
        deadline = asyncio.get_running_loop().time() + self._seconds

        async def limited() -> Message:
            nonlocal received, complete
            try:
                async with asyncio.timeout_at(None if complete else deadline):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the body took too long", headers={"connection": "close"}) from None
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > self._limit:
                raise HTTPException(413, f"the body is over {self._limit} bytes", headers={"connection": "close"})
            return message

        await self.app(scope, limited, send)


class ClientGone(Exception):
    """The client left before it was answered."""


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client leaves: then raises ClientGone.

    The request's body must have been read.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
    if working.cancelled():
        raise ClientGone
    return working.result()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
