"""Server-sent events (WHATWG HTML, 9.2), as much as a reply to one request needs: the data of each event."""

from __future__ import annotations

import re

__all__ = ["SseDecoder"]

_LINE_END = re.compile(rb"[\r\n]")


class SseDecoder:
    """Feed it a body as it grows; no byte is looked at twice, however it is cut."""

    def __init__(self) -> None:
        self.lines = 0
        """So far: an event costs a few of them, so a stream of many and no reply is malice or a fault."""
        self._start = 0
        self._seen = 0
        self._after_return = False
        self._data: list[bytes] = []

    def feed(self, body: bytes | bytearray) -> list[bytes]:
        """body: everything so far. Returns the data of the events that it completes, in order."""
        events = []
        while self._seen < len(body):
            if self._after_return and body[self._seen] == 0x0A:  # \r\n is one line's end, even when cut in two
                self._start = self._seen = self._seen + 1
            self._after_return = False
            found = _LINE_END.search(body, self._seen)
            if found is None:
                self._seen = len(body)
                break
            end = found.start()
            line = bytes(body[self._start : end])
            self._after_return = body[end] == 0x0D
            self._start = self._seen = end + 1
            self.lines += 1
            if line:
                name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
                if name == b"data":
                    self._data.append(value.removeprefix(b" "))
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
