"""An env of a third party's kind: FastMCP as its authors ship it, on a port."""

import os

from fastmcp import FastMCP

app = FastMCP("echo")


@app.tool
def echo(message: str) -> str:
    """Say it again."""
    return message


if __name__ == "__main__":
    app.run(
        transport="http",
        host=os.environ.get("MCP_HOST", "0.0.0.0"),
        port=int(os.environ.get("MCP_PORT", "18765")),
        path="/mcp",
        log_level="warning",
    )
