"""The official OpenEnv server (openenv 0.10.0) with an echo env: a FastMCP server inside the server's own process.

    python official.py PORT SESSIONS

Nothing is isolated, deployed or scored here: an episode of it is the least that an OpenEnv server can do.
"""

import sys
import uuid
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server import Observation, State, create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation


class Echo(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("echo")

        @mcp.tool
        def echo(message: str) -> str:
            """Say it again."""
            return message

        super().__init__(mcp)
        self._state = State(episode_id="", step_count=0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        self._state = State(episode_id=episode_id or uuid.uuid4().hex, step_count=0)
        return Observation(done=False, reward=0.0)

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise ValueError("only tool calls")

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    port, sessions = (int(word) for word in sys.argv[1:])
    app = create_app(Echo, CallToolAction, CallToolObservation, env_name="echo", max_concurrent_envs=sessions)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
