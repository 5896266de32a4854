"""The score of the first turn: for each ticket, half a point for the team and half for the priority."""

from agent_env.env.client import data


async def verify(mcp_url: str) -> list[dict[str, object]]:
    tickets = data(mcp_url)["tickets"]
    if not tickets:
        raise RuntimeError("no inbox was loaded, so there is nothing to score")
    rows = []
    for ticket in tickets:
        routed = ticket["routed"] or {}
        score = sum(routed.get(key) == ticket[key] for key in ("team", "priority")) / 2
        why = f"routed to {routed.get('team')}, {routed.get('priority')}; right: {ticket['team']}, {ticket['priority']}"
        rows.append({"criterion": ticket["id"], "result": score == 1.0, "score": score, "description": why})
    return rows
