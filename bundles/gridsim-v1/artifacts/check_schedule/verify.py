"""GridSim's score."""

from agent_env.env.client import data

IDLE_SCORE = 0.2


def score(profit: int | None, optimum: int) -> float:
    """0 without a schedule that keeps the rules, or at a loss; 0.2 at zero profit; 1 at the optimum; linear between.

    The quotient comes first, so that idling is exactly 0.2 and the optimum exactly 1.0.
    """
    if profit is None or profit < 0:
        return 0.0
    return IDLE_SCORE + (1 - IDLE_SCORE) * (profit / optimum)


async def verify(mcp_url: str) -> list[dict[str, object]]:
    found = data(mcp_url)
    if found["day"] is None:
        raise RuntimeError("no day was loaded, so there is nothing to score")
    if found["schedule"] is None:
        why = "no schedule was submitted"
    elif found["broken"] is not None:
        why = found["broken"]
    else:
        why = f"made {found['profit']} of {found['optimum']} hundredths of a cent"
    value = score(found["profit"], found["optimum"])
    return [{"criterion": "profit", "result": value == 1.0, "score": value, "description": why}]
