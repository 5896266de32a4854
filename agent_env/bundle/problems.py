"""Where a bundle's problems are collected while it is read, so that its author sees all of them at once."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from agent_env.bundle.model import Problem

__all__ = ["Problems", "closest", "printable", "show"]

_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal line can't hold: controls, formats, lone surrogates, line separators."""


_MOST_COMPARED = 500
"""Names among which the nearest is looked for: it takes some 20 µs each."""


class Problems:
    """Problems found so far. Reading goes on after each, with what is readable."""

    def __init__(self) -> None:
        self._found: set[Problem] = set()

    def __len__(self) -> int:
        return len(self._found)

    def add(self, file: str, place: str, what: str, fix: str) -> None:
        """Note a problem; texts that came from the bundle are made printable on one line."""
        self._found.add(Problem(show(file), show(place), show(what), show(fix)))

    @property
    def found(self) -> tuple[Problem, ...]:
        return tuple(sorted(self._found))


def show(text: str) -> str:
    """`text` on one printable line: control characters and bytes that aren't UTF-8 are escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) in _UNSHOWN else c for c in text)


def printable(text: str) -> bool:
    """Whether `text` can be shown, and written as UTF-8, as it is."""
    return not any(unicodedata.category(c) in _UNSHOWN for c in text)


def closest(word: str, known: Iterable[str], nouns: str) -> str:
    """The fix for a name that isn't there: the nearest one, or those that there are. nouns: what they are, plural."""
    import difflib  # only when a bundle is broken

    names = sorted(set(known))
    near = difflib.get_close_matches(word, names, n=1) if len(names) <= _MOST_COMPARED else []
    if near:
        return f"did you mean {near[0]!r}?"
    if not names:
        return f"there are no {nouns}"
    listed = ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
    return f"{nouns}: {listed}"
