"""What a child prints: drained as it comes, the end of it kept."""

from __future__ import annotations

import asyncio
import os

__all__ = ["Output"]

_CHUNK = 1 << 16
_PAUSE = 0.005


class Output:
    """A pipe that the event loop drains. Bounded in memory, and in time: an env that prints without end is read at
    some 12 MB/s at most, then it waits, not its neighbours."""

    def __init__(self, keep: int) -> None:
        """keep: bytes of the end that are kept."""
        self._keep = keep
        self._tail = bytearray()
        self._loop = asyncio.get_running_loop()
        self._paused: asyncio.TimerHandle | None = None
        self._read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._read_end, False)
        self._loop.add_reader(self._read_end, self._on_readable)
        self._open = True

    @property
    def text(self) -> str:
        return self._tail.decode(errors="replace")

    def passed(self) -> None:
        """The write end has been given away: close ours, so that the pipe ends with the child."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Take what is there already, then close. Idempotent."""
        self.passed()
        if not self._open:
            return
        for _ in range(16):
            if not self._read():
                break
        self._stop()

    def _on_readable(self) -> None:
        if self._read() == _CHUNK:
            self._loop.remove_reader(self._read_end)
            self._paused = self._loop.call_later(_PAUSE, self._loop.add_reader, self._read_end, self._on_readable)

    def _read(self) -> int:
        if not self._open:
            return 0
        try:
            data = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return 0
        if not data:
            self._stop()
            return 0
        self._tail += data
        del self._tail[: -self._keep]
        return len(data)

    def _stop(self) -> None:
        if self._open:
            self._open = False
            if self._paused is not None:
                self._paused.cancel()
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
