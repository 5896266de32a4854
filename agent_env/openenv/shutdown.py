"""Stopping in bounded time under a plain `uvicorn.run(app)`."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["on_stop_signal"]

_log = logging.getLogger(__name__)


@contextmanager
def on_stop_signal(stop: Callable[[], None], *, timeout: float) -> Iterator[None]:
    """Call `stop` on the event loop at SIGINT or SIGTERM, before whatever handled the signal so far.

    uvicorn tells its app to shut down only when the last request is answered and the last connection is closed, and
    waits for that without a bound: a call of minutes, or a client that reads nothing, would hold the exit up. So
    sessions are ended at the signal, and uvicorn is given `timeout` seconds for the rest, if its user set no
    `timeout_graceful_shutdown`. Outside the main thread there are no signals to hear, and this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    undo = [_chain(sig, stop, timeout, loop) for sig in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for put_back in undo:
            put_back()


def _chain(
    sig: signal.Signals, stop: Callable[[], None], timeout: float, loop: asyncio.AbstractEventLoop
) -> Callable[[], None]:
    before = signal.getsignal(sig)

    def handle(number: int, stack: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        if callable(before):
            before(number, stack)

    def put_back() -> None:
        if signal.getsignal(sig) is handle:
            signal.signal(sig, before)

    if not callable(before):  # nobody here handles this signal: leave it alone
        return put_back
    _bound(getattr(before, "__self__", None), timeout)
    signal.signal(sig, handle)
    return put_back


def _bound(server: Any, timeout: float) -> None:
    """`server` is uvicorn's Server, if the signal handler that was found is its method."""
    config = getattr(server, "config", None)
    if config is not None and getattr(config, "timeout_graceful_shutdown", 0) is None:
        config.timeout_graceful_shutdown = math.ceil(timeout)
        _log.debug("uvicorn's timeout_graceful_shutdown set to %d s", math.ceil(timeout))
