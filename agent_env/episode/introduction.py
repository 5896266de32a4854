"""What an env's server may tell of itself as it comes up, so that nobody has to ask: its card, its tools, and an MCP
session that is open. It saves an episode four requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_env.episode.http import BadReply
from agent_env.episode.jsontext import JsonSyntaxError, JsonValueError, decode
from agent_env.episode.mcp import McpTool, OpenSession

__all__ = ["Introduction"]


@dataclass(frozen=True, slots=True)
class Introduction:
    card: Mapping[str, Any]
    session: OpenSession

    @classmethod
    def parse(cls, data: bytes) -> Introduction | None:
        """None if there is none, or it makes no sense: the env is asked then, as any other is."""
        if not data:
            return None
        try:
            told = decode(data)
            card, listed = told["card"], told["card"]["capabilities"]["tools"]
            if not isinstance(card, dict) or not isinstance(listed, list):
                return None
            tools = tuple(McpTool.parse(entry) for entry in listed)
            return cls(card, OpenSession.parse(told["session"], told["version"], tools))
        except (JsonSyntaxError, JsonValueError, BadReply, LookupError, TypeError):
            return None
