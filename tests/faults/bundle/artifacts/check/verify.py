"""The total, out of ten."""

import asyncio

from agent_env.env.client import data


async def verify(mcp_url: str) -> list[dict[str, object]]:
    await asyncio.sleep(data(mcp_url)["score_seconds"])
    return [{"criterion": "total", "score": data(mcp_url)["total"] / 10}]
