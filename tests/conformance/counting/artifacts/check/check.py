"""The score: a tenth of the total, at most 1."""

from agent_env.env.client import data


async def verify(mcp_url: str) -> list[dict[str, object]]:
    total = data(mcp_url)["total"]
    return [{"result": total >= 10, "score": max(0.0, min(1.0, total / 10))}]
