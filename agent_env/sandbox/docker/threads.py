"""Threads for calls that block: a fixed number, which never keep the process from ending."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """Runs functions in up to `size` daemon threads, first come, first served.

    The standard library's ThreadPoolExecutor is not used since the interpreter waits for its threads when it ends, and
    a call to a daemon that hangs, or an image build, may take minutes.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """The future can be cancelled as long as its function has not begun."""
        future: Future[T] = Future()
        with self._lock:
            self._queue.put((future, function))
            if self._idle < self._queue.qsize() and self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let the threads end once the queue is empty."""
        with self._lock:
            for _ in range(self._threads):
                self._queue.put(None)

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            work = self._queue.get()
            with self._lock:
                self._idle -= 1
            if work is None:
                return
            future, function = work
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del future, function, work  # an idle thread keeps nothing alive
