"""For env authors: write a class with tools, serve it as an MCP server. Standard library only.

    from typing import Annotated
    from agent_env.env import Env, ToolError, serve, tool

    class Counter(Env):
        \"\"\"Counts up to a goal.\"\"\"

        def __init__(self) -> None:
            self.count = 0

        @tool
        def add(self, amount: Annotated[int, "how much to add, at least 1"]) -> str:
            \"\"\"Add to the counter.\"\"\"
            if amount < 1:
                raise ToolError("amount must be at least 1")
            self.count += amount
            return f"the counter is at {self.count}"

        def get_data(self) -> dict[str, int]:
            return {"count": self.count}

    if __name__ == "__main__":
        serve(Counter)

`agent_env.env.schema` says which annotations there are, `agent_env.env.server` how an env is reached,
`agent_env.env.client` reads an env's data in a verifier, `agent_env.env.testing` drives an env in a unit test.
"""

from agent_env.env.base import Env, ToolError, extension, tool
from agent_env.env.schema import Field
from agent_env.env.server import serve

__all__ = ["Env", "Field", "ToolError", "extension", "serve", "tool"]
