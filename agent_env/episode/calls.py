"""One tool call, and what it came to: a value, the model's own error, or a fault that is none of the model's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from agent_env.episode.http import PeerError, TooLarge
from agent_env.episode.jsontext import JsonValueError
from agent_env.episode.live_env import LiveEnv
from agent_env.episode.mcp import INVALID_PARAMS, PARSE_ERROR, CallResult, RpcError, UnreadableReply
from agent_env.episode.types import ErrorKind, ToolResult
from agent_env.sandbox.interface import SandboxError

__all__ = ["call_tool"]

REFUSED_ARGUMENTS = re.compile(
    r"(Error executing tool [^:]*: )?\d+ validation errors? for |Input validation error: "
    r"|[\w.-]+: (unknown argument|missing argument|argument) "
)
"""How an error begins that says that the arguments don't fit the tool's schema: in mcp and FastMCP, and in ours."""


async def call_tool(live: LiveEnv, name: str, arguments: Mapping[str, Any], timeout: float | None) -> ToolResult:
    """Call a tool of an env, once: what was sent is never sent again. timeout: seconds; None: as long as it takes.

    Raises nothing of the env's doing. A result that can't be passed on (NaN, too long, ...) is the tool's own data, so
    the model's to see; an answer that is no answer is a transport error.
    """
    if live.lost is not None:
        return _error(ErrorKind.TRANSPORT, live.lost)
    try:
        async with asyncio.timeout(timeout) as deadline:
            return _result(await live.client.call_tool(name, arguments))
    except JsonValueError as error:
        return _error(ErrorKind.INVALID_ARGUMENTS, f"{name}: the arguments hold {error}")
    except RpcError as error:
        refused = error.code in (INVALID_PARAMS, PARSE_ERROR)
        kind = ErrorKind.INVALID_ARGUMENTS if refused else ErrorKind.EXECUTION
        return _error(kind, str(error) or f"{name} failed without a message")
    except (UnreadableReply, TooLarge) as error:
        return _error(ErrorKind.EXECUTION, f"{name}: the result can't be passed on: {error}")
    except (PeerError, SandboxError, OSError) as error:
        if isinstance(error, TimeoutError) and deadline.expired():
            return _error(ErrorKind.TIMEOUT, f"{name} did not answer within {timeout:g} s")
        return _error(ErrorKind.TRANSPORT, await live.why_lost() or live.described(str(error)))


def _result(called: CallResult) -> ToolResult:
    if not called.is_error:
        return ToolResult(content=called.content, structured=called.structured)
    text = called.text if called.text.strip() else "the tool failed without a message"
    kind = ErrorKind.INVALID_ARGUMENTS if REFUSED_ARGUMENTS.match(text) else ErrorKind.EXECUTION
    return ToolResult(content=called.content, structured=called.structured, error=kind, message=text)


def _error(kind: ErrorKind, message: str) -> ToolResult:
    return ToolResult(error=kind, message=message)
