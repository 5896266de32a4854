"""Log lines that thousands of rollouts would write at once: the first of a kind at once, then one a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

__all__ = ["Notices"]


@dataclass(slots=True)
class _Kind:
    said_at: float
    unsaid: int = 0


class Notices:
    """`every`: seconds between two lines of one kind; `clock`: seconds, monotonic."""

    def __init__(
        self, logger: logging.Logger, *, every: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._every = every
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def say(self, kind: Hashable, level: int, message: str, *, error: BaseException | None = None) -> bool:
        """Log `message`, unless a line of its kind was logged less than `every` seconds ago; with `error`, the first
        line of the kind has its traceback. True if it was logged."""
        now = self._clock()
        known = self._kinds.get(kind)
        if known is not None and now - known.said_at < self._every:
            known.unsaid += 1
            return False
        more = f" ({known.unsaid} more like it since the last such line)" if known and known.unsaid else ""
        self._kinds[kind] = _Kind(now)
        self._logger.log(level, "%s%s", message, more, exc_info=error if known is None else None)
        return True
