"""The score."""

from agent_env.env.client import data

ENOUGH = 7  # halving 1 to 100 finds any number in so many guesses


async def verify(mcp_url: str) -> list[dict[str, object]]:
    """A list of rows, which the step's score_aggregator makes a score of. If it raises, the episode is unscored."""
    found = data(mcp_url)
    secret, guesses = found["secret"], found["guesses"]
    if secret is None:
        raise RuntimeError("no number was set, so there is nothing to score")
    if secret not in guesses:
        score, why = 0.0, f"not found in {len(guesses)} guesses"
    else:
        needed = guesses.index(secret) + 1
        score, why = max(0.1, 1 - 0.1 * max(0, needed - ENOUGH)), f"found in {needed} guesses"
    return [{"criterion": "found", "result": score == 1.0, "score": score, "description": why}]
