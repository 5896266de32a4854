"""For authors' unit tests: drive an env in this process, through all of its code but the sockets.

from agent_env.env.testing import Driver

def test_adds():
    with Driver(Counter) as env:
        assert env.call("add", amount=2).text == "the counter is at 2"
        assert env.call("add", amount=True).is_error
        assert env.data() == {"count": 2}
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from agent_env.env import jsontext
from agent_env.env.app import App
from agent_env.env.base import Env, ToolError
from agent_env.env.http1 import Request, Response
from agent_env.env.service import Service, ToolResult

__all__ = ["Driver"]


class Driver:
    """One episode's env, on an event loop of its own; not for use inside a running one.

    `env` is the instance, whose attributes a test may look at.
    """

    def __init__(self, env_class: type[Env]) -> None:
        """Raises TypeError if a tool can't be described in JSON."""
        self._runner = asyncio.Runner()
        try:
            self.env, self._app = self._runner.run(_make(env_class))
        except BaseException:
            self._runner.close()
            raise
        self._headers: dict[str, str] = {}
        opened = self._request("POST", "/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})
        self._headers = {"mcp-session-id": opened.headers["Mcp-Session-Id"]}

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the event loop. Idempotent."""
        self._runner.close()

    def card(self) -> dict[str, Any]:
        return dict(jsontext.loads(self._request("GET", "/.well-known/agent-env.json").body))

    def tools(self) -> list[dict[str, Any]]:
        """As tools/list gives them, hidden ones too."""
        return list(self._rpc("/mcp", "tools/list")["tools"])

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool as a model does; arguments are what JSON can hold."""
        result = self._rpc("/mcp", "tools/call", {"name": tool, "arguments": arguments})
        text = "".join(part["text"] for part in result["content"])
        return ToolResult(text, result["isError"], result.get("structuredContent"))

    def call_extension(self, operation: str, /, **arguments: Any) -> Any:
        """Call an extension's operation by its name. Raises ToolError with the env's message if it fails."""
        response = self._request("POST", f"/agentenv/ext/{operation}", arguments)
        answer = jsontext.loads(response.body)
        if response.status != 200:
            error = answer["error"]
            raise ToolError(error["message"] if isinstance(error, dict) else error)
        return answer

    def reset_data(self) -> None:
        """Raises ToolError if the env fails or doesn't serve it, as all data operations do."""
        self._rpc("/agentenv", "data/reset")

    def add_data(self, parts: list[dict[str, Any]]) -> None:
        self._rpc("/agentenv", "data/add", {"parts": parts})

    def get_data(self) -> list[dict[str, Any]]:
        return list(self._rpc("/agentenv", "data/get")["parts"])

    def data(self) -> dict[str, Any]:
        """The first data part: what a `get_data` method that returns a dict returned."""
        return next(dict(part["data"]) for part in self.get_data() if part["kind"] == "data")

    def _rpc(self, path: str, method: str, params: dict[str, Any] | None = None) -> Any:
        answer = jsontext.loads(
            self._request("POST", path, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}).body
        )
        if "error" in answer:
            raise ToolError(answer["error"].get("data", {}).get("detail") or answer["error"]["message"])
        return answer["result"]

    def _request(self, method: str, path: str, body: Any = None) -> Response:
        content = b"" if body is None else jsontext.dumps(body)
        return self._runner.run(self._app.handle(Request(method, path, self._headers, content, True)))


async def _make(env_class: type[Env]) -> tuple[Env, App]:
    env = env_class()  # on the loop, as it is when served
    return env, App(Service(env))
