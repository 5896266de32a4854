"""An env that counts."""

from typing import Any

from agent_env.env import Env, serve, tool


class Counter(Env):
    """A counter."""

    name = "counter"

    def __init__(self) -> None:
        self.reset_data()

    @tool
    def add(self, amount: int) -> str:
        """Add an amount to the counter."""
        self.total += amount
        return str(self.total)

    def reset_data(self) -> None:
        """Begin at 0."""
        self.total = 0

    def get_data(self) -> dict[str, Any]:
        """For the verifier."""
        return {"total": self.total}


if __name__ == "__main__":
    serve(Counter)
