"""One line of a preflight."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level", "fail", "ok", "warn"]


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    what: str
    fix: str = ""
    """What to do; "" where nothing is to be done."""

    def __str__(self) -> str:
        return f"{self.level.value:>4}  {self.what}" + (f": {self.fix}" if self.fix else "")


def ok(what: str) -> Finding:
    return Finding(Level.OK, what)


def warn(what: str, fix: str) -> Finding:
    return Finding(Level.WARN, what, fix)


def fail(what: str, fix: str) -> Finding:
    return Finding(Level.FAIL, what, fix)
