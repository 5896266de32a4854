"""What a row says of the scripted server's task: its prompt, its tools and its settings."""

from __future__ import annotations

import json
from typing import Any

PROMPT = ({"role": "system", "content": "End with end_turn."}, {"role": "user", "content": "Add 2 and 3."})


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {
        "name": name,
        "description": f"The tool {name}.",
        "input_schema": {"type": "object", "properties": properties or {"x": {"type": "integer"}}},
    }


END_TURN = tool("end_turn", response={"type": "string"})
TOOLS = [tool("add"), tool("note", text={"type": "string"}), END_TURN]


def openai_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]},
        }
        for t in tools
    ]


def metadata(url: str | list[str], **settings: Any) -> dict[str, Any]:
    """A row's metadata for a task of the scripted server, with short deadlines."""
    server: dict[str, Any] = {"url": url} if isinstance(url, str) else {"urls": url}
    server |= {"reset_timeout": 5.0, "call_timeout": 5.0, "model_timeout": 5.0, **settings}
    return {
        "split": "train",
        "index": 3,
        "task_id": "@local/double/three",
        "tools": json.dumps(openai_tools(TOOLS)),
        "server": server,
    }
