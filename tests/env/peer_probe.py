"""Run under a Python that has the official clients: `peer_probe.py BASE_URL` prints what they made of the shelf env."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from agentenv_protocol import client
from agentenv_protocol.tool_client import ToolSession
from agentenv_protocol.types import EnvironmentCard, TextPart
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def with_mcp(url: str) -> dict[str, Any]:
    async with (
        streamable_http_client(f"{url}/mcp") as (read, write, *_),
        ClientSession(read, write) as session,
    ):
        opened = await session.initialize()
        await session.send_ping()
        listed = (await session.list_tools()).tools
        good = await session.call_tool("put", {"item": "é", "times": 2})
        bad = await session.call_tool("put", {"item": "é", "times": True})
        peeked = await session.call_tool("peek", {})
        return {
            "server": opened.serverInfo.name,
            "tools": [tool.name for tool in listed],
            "hidden": [tool.name for tool in listed if (tool.meta or {}).get("agentenv.io/hiddenByDefault")],
            "good": [good.isError, good.content[0].text],
            "bad": [bad.isError, bad.content[0].text],
            "structured": peeked.structuredContent,
        }


async def with_agentenv(url: str) -> dict[str, Any]:
    card = await client.get_card(url)
    EnvironmentCard.model_validate(card)
    await client.reset_data(url)
    await client.add_data(url, [TextPart(text="a")])
    found = {"added": (await client.get_data(url)).parts[0].data}
    found["loaded"] = await client.invoke_extension(
        url, card, "urn:test:shelf/v1", {"items": ["b", "c"]}, method="load"
    )
    try:
        await client.invoke_extension(url, card, "urn:test:shelf/v1", {"items": ["bad"]}, method="load")
    except client.ExtensionCallError as error:
        found["refused"] = str(error)
    async with ToolSession(mcp_url=url + client.mcp_path(card)) as session:
        found["tools"] = [tool.name for tool in await session.list_tools()]
        found["called"] = (await session.call_tool("put", {"item": "d"})).text
    return found


async def main() -> None:
    url = sys.argv[1]
    print(json.dumps({"mcp": await with_mcp(url), "agentenv": await with_agentenv(url)}))


asyncio.run(main())
