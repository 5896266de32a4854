"""Which tools of an env a role sees. The rules are the public framework's gateway's; we have no gateway, so an episode
keeps them itself, and refuses calls to what is hidden as it would to what isn't there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["DEFAULT_ROLE", "EXTENSIONS", "ToolAccess", "hidden_by_default"]

DEFAULT_ROLE = "default"
EVERY = "*"
EXTENSIONS = {"disable": "urn:agentenv:disable-tool/v1", "enable": "urn:agentenv:enable-tool/v1"}
"""Action -> the extension by which a server that keeps such rules itself is told of them too."""


def hidden_by_default(meta: Mapping[str, Any]) -> bool:
    """Whether a tool's `_meta` hides it until a step names it."""
    return meta.get("agentenv.io/hiddenByDefault") is True


class ToolAccess:
    """The rules of one env, by role. The role's own rules come before those of `*`, and in each a rule that names the
    tool before one for `*`. A tool hidden by default heeds only rules that name it."""

    def __init__(self) -> None:
        self._shown: dict[str, dict[str, bool]] = {}

    def change(self, action: str, role: str, tools: Iterable[str]) -> None:
        """action: `enable` or `disable`; role and tools may be `*`."""
        for tool in tools:
            self._change(role, tool, action == "enable")

    def shows(self, role: str, tool: str, *, hidden: bool) -> bool:
        for name in (role, EVERY):
            rules = self._shown.get(name, {})
            if tool in rules:
                return rules[tool]
            if EVERY in rules and not hidden:
                return rules[EVERY]
        return not hidden

    def _change(self, role: str, tool: str, shown: bool) -> None:
        if role == EVERY and tool == EVERY:
            self._shown.clear()
        if role == EVERY and tool != EVERY:
            for rules in self._shown.values():
                rules[tool] = shown
        if tool == EVERY:
            self._shown[role] = {}
        self._shown.setdefault(role, {})[tool] = shown
