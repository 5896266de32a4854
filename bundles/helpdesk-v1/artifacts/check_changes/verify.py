"""The score of the third turn: a point for each change that should be made, and one less for each that should not."""

from agent_env.env.client import data


async def verify(mcp_url: str) -> list[dict[str, object]]:
    found = data(mcp_url)
    allowed, made = found["allowed"], found["made"]
    if not found["people"] or not allowed:
        raise RuntimeError("the directory was not set up, so there is nothing to score")
    rows: list[dict[str, object]] = []
    for change in allowed:
        done = change in made
        rows.append({"criterion": _said(change), "result": done, "score": float(done), "weight": 1.0})
    for change in made:
        if change not in allowed:
            row = {"criterion": f"not {_said(change)}", "result": False, "score": 0.0, "weight": -1.0}
            rows.append(row)
    return rows


def _said(change: dict[str, str]) -> str:
    return f"{change['field']} of {change['email']} to {change['value']}"
