"""An env's operations, apart from any wire: its card, tool calls, extensions and data plane."""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_env.env import jsontext
from agent_env.env.arguments import Arguments, arguments_of
from agent_env.env.base import Env, ExtensionMark, ToolError, ToolMark, marks
from agent_env.env.schema import Invalid

__all__ = ["DATA_OPERATIONS", "Refused", "Service", "ToolResult", "log_failure"]

DATA_OPERATIONS = {"data/reset": "reset_data", "data/add": "add_data", "data/get": "get_data"}


class Refused(Exception):
    """An extension's arguments were refused before anything was changed."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool call came to: text for the model, and the object itself if the tool returned one."""

    text: str
    is_error: bool = False
    structured: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Operation:
    """A marked method, ready to be called."""

    name: str
    description: str
    arguments: Arguments
    method: Callable[..., Any]
    hidden: bool = False
    uri: str = ""


class Service:
    """Serves one Env instance. Raises TypeError when made, if a method can't be described in JSON."""

    def __init__(self, env: Env, name: str = "") -> None:
        """name: overrides the env's own."""
        self.env = env
        self.name = name or env.name or type(env).__name__.lower()
        self.operations = [op for op, method in DATA_OPERATIONS.items() if _overrides(type(env), method)]
        self._tools: dict[str, _Operation] = {}
        self._extensions: dict[str, _Operation] = {}
        for attribute, mark in marks(type(env)).items():
            self._add(getattr(env, attribute), mark)
        methods = [operation.method for operation in (*self._tools.values(), *self._extensions.values())]
        methods += [getattr(env, DATA_OPERATIONS[operation]) for operation in self.operations]
        self.waits = any(inspect.iscoroutinefunction(inspect.unwrap(method)) for method in methods)
        """Whether any method is `async`; if not, no coroutine of this class ever suspends."""
        self._turn: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
        if self.waits:
            import asyncio  # as in server.py: only where it is needed

            self._turn = asyncio.Lock()

    def _add(self, method: Callable[..., Any], mark: ToolMark | ExtensionMark) -> None:
        arguments = arguments_of(method.__func__)  # type: ignore[attr-defined]  # a bound method's
        description = inspect.getdoc(method) or ""
        if isinstance(mark, ToolMark):
            group, operation = self._tools, _Operation(mark.name, description, arguments, method, hidden=mark.hidden)
        else:
            group, operation = self._extensions, _Operation(mark.name, description, arguments, method, uri=mark.uri)
        if mark.name in group:
            raise TypeError(f"{type(self.env).__name__}: two methods are named {mark.name}")
        group[mark.name] = operation

    def tools(self) -> list[dict[str, Any]]:
        """As MCP's tools/list has them. Hidden ones are marked: whoever deploys the env shows them or not."""
        listed = []
        for tool in self._tools.values():
            entry = {"name": tool.name, "description": tool.description, "inputSchema": tool.arguments.schema}
            listed.append({**entry, "_meta": {"agentenv.io/hiddenByDefault": True}} if tool.hidden else entry)
        return listed

    @property
    def extensions(self) -> list[str]:
        """Names of the operations that `call_extension` knows."""
        return list(self._extensions)

    def card(self) -> dict[str, Any]:
        extensions: dict[str, dict[str, Any]] = {}
        for operation in self._extensions.values():
            entry = extensions.setdefault(operation.uri, {"uri": operation.uri, "params": {"methods": {}}})
            entry["params"]["methods"][operation.name] = {
                "endpoint": f"/agentenv/ext/{operation.name}",
                "description": operation.description,
                "inputSchema": operation.arguments.schema,
            }
        return {
            "name": self.name,
            "description": inspect.getdoc(type(self.env)) or "",
            "version": self.env.version,
            "protocolVersion": "1.0",
            "url": "/agentenv",
            "preferredTransport": "JSONRPC",
            "additionalInterfaces": [{"url": "/mcp", "transport": "mcp"}],
            "capabilities": {
                "extensions": list(extensions.values()) or None,
                "tools": self.tools(),
                "operations": self.operations,
            },
            "children_environments": None,
        }

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Never raises for what a tool does; calls are served one at a time, in the order they came."""
        tool = self._tools.get(name)
        if tool is None:
            offered = ", ".join(tool.name for tool in self._tools.values() if not tool.hidden) or "none"
            return ToolResult(f"unknown tool {name!r} (tools: {offered})", is_error=True)
        try:
            bound = tool.arguments.bind(arguments)
        except Invalid as problem:
            return ToolResult(f"{name}: {problem}", is_error=True)
        async with self._turn:
            try:
                return _result(await self._finish(tool.method(**bound)))
            except ToolError as error:
                return ToolResult(str(error) or "the tool failed", is_error=True)
            except Exception as error:
                log_failure(f"tool {name}")
                return ToolResult(str(error) or type(error).__name__, is_error=True)
            except BaseException as error:
                if not self._cancelled_itself(error):
                    raise
                return ToolResult(f"{name} was cancelled", is_error=True)

    def _cancelled_itself(self, error: BaseException) -> bool:
        """Whether a tool ended by a cancellation that its caller knows nothing of."""
        asyncio = sys.modules.get("asyncio")  # without it, nothing is cancelled
        if asyncio is None or not isinstance(error, asyncio.CancelledError):
            return False
        task = asyncio.current_task() if self.waits else None
        return task is None or not task.cancelling()

    async def call_extension(self, name: str, arguments: dict[str, Any]) -> Any:
        """What the operation, one of `extensions`, returns ({"ok": true} for None). Raises Refused, and whatever else
        the operation raises."""
        operation = self._extensions[name]
        try:
            returned = await self._finish(operation.method(**operation.arguments.bind(arguments)))
        except (Invalid, ToolError) as error:
            raise Refused(str(error)) from error
        return {"ok": True} if returned is None else returned

    async def reset_data(self) -> None:
        await self._finish(self.env.reset_data())

    async def add_data(self, parts: list[dict[str, Any]]) -> None:
        await self._finish(self.env.add_data(parts))

    async def get_data(self) -> list[dict[str, Any]]:
        parts = await self._finish(self.env.get_data())
        return [{"kind": "data", "data": parts}] if isinstance(parts, dict) else parts

    async def _finish(self, returned: Any) -> Any:
        if not inspect.isawaitable(returned):
            return returned
        if not self.waits:
            if inspect.iscoroutine(returned):
                returned.close()
            raise TypeError("a method returned an awaitable; define it with `async def`")
        return await returned


def _result(returned: Any) -> ToolResult:
    if returned is None:
        return ToolResult("")
    if isinstance(returned, str):
        return ToolResult(returned)
    if isinstance(returned, bytes):
        return ToolResult(returned.decode("utf-8", "replace"))
    try:
        text = jsontext.dumps(returned).decode()
    except (TypeError, ValueError) as error:
        raise TypeError(f"the tool returned something that JSON can't hold: {error}") from None
    return ToolResult(text, structured=returned if isinstance(returned, dict) else None)


def _overrides(cls: type[Env], method: str) -> bool:
    return getattr(cls, method) is not getattr(Env, method)


def log_failure(what: str) -> None:
    """Print the traceback of the exception being handled; the host logs standard error."""
    print(f"{what} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
