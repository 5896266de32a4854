"""A Dockerfile's text as instructions and words. No meaning yet: that is `dockerfile`'s."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping

__all__ = ["exec_form", "expand", "instructions", "shell_commands", "split_flags", "unquote"]

_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line from 1, INSTRUCTION, the rest) of each. Comments are dropped, continued lines joined, heredocs skipped."""
    start, joined, heredoc = 0, "", ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if heredoc:
            heredoc = "" if line == heredoc else heredoc
            continue
        if not line or line.startswith("#"):
            continue
        start = start if joined else number
        if line.endswith("\\"):
            joined += line[:-1].rstrip() + " "
            continue
        joined += line
        yield start, *_named(joined)
        if opened := _HEREDOC.search(joined):
            heredoc = opened[2]
        joined = ""
    if joined:
        yield start, *_named(joined)


def _named(line: str) -> tuple[str, str]:
    name, _, rest = line.strip().partition(" ")
    return name.upper(), rest.strip()


def split_flags(text: str) -> tuple[dict[str, str], str]:
    """Leading `--name=value` flags, and what follows them."""
    flags = {}
    while text.startswith("--"):
        word, _, text = text.partition(" ")
        name, _, value = word[2:].partition("=")
        flags[name] = value
        text = text.lstrip()
    return flags, text


def exec_form(text: str) -> tuple[str, ...] | None:
    """The words of a JSON array of strings; None when it is not one."""
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return tuple(words)
    return None


def shell_commands(text: str) -> list[list[str]] | None:
    """The words of a shell line's commands, which `&&` or `;` join; None when it is more than that."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return None
    commands: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", ";"):
            commands.append([])
        elif set(word) <= set("|&<>();") or "$(" in word or "`" in word:
            return None
        else:
            commands[-1].append(word)
    return [command for command in commands if command] or None


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`; what isn't set is empty."""

    def value(match: re.Match[str]) -> str:
        if match[0] == r"\$":
            return "$"
        found = variables.get(match[1] or match[2])
        operator, word = match[3] or "", match[4] or ""
        is_set = bool(found) if operator.startswith(":") else found is not None
        if operator.endswith("+"):
            return word if is_set else ""
        return word if operator and not is_set else found or ""

    return _VARIABLE.sub(value, text)


def unquote(text: str) -> str:
    """A word without the quotes around it."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
