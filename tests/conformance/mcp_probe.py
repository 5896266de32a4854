"""Plays a task with the official MCP SDK's client: `mcp_probe.py URL`. Prints what it saw, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    async with streamable_http_client(sys.argv[1]) as (read, write, _), ClientSession(read, write) as session:
        hello = await session.initialize()
        tools = await session.list_tools()
        added = await session.call_tool("add", {"amount": 4})
        refused = await session.call_tool("add", {"amount": "four"})
        ended = await session.call_tool("end_turn", {"response": "4"})
    found = {
        "instructions": hello.instructions,
        "tools": [tool.name for tool in tools.tools],
        "added": [added.isError, added.content[0].text],
        "refused": refused.isError,
        "ended": ended.structuredContent,
    }
    print(json.dumps(found))


asyncio.run(main())
