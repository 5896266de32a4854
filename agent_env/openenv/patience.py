"""An HTTP protocol for uvicorn that does not wait for ever for a request's head, as uvicorn's own do."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["HEAD_SECONDS", "HeadTimeoutProtocol"]

HEAD_SECONDS = 10.0
"""From the first byte of a request (or the connection) to the end of its head, a WebSocket's upgrade included."""


class HeadTimeoutProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type, unused-ignore]
    """Closes a connection whose client takes longer than HEAD_SECONDS over a head: a few such clients would otherwise
    hold every descriptor that the server may have. A request that is being answered takes as long as it takes."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and not self._answering():
            self._timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)
        super().data_received(data)
        if self._timer is not None and self._answering():
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_is_late(self) -> None:
        self._timer = None
        # After an upgrade the transport has another protocol, whose own limits hold.
        if not self._answering() and self.transport.get_protocol() is self:
            self.transport.close()
