"""An echo has no state to look at: what is measured is that a verifier ran."""


async def verify(mcp_url: str) -> list[dict[str, object]]:
    return [{"criterion": "played", "result": True, "score": 1.0}]
