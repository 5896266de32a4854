"""A row, read from what the trainer hands over: strict, and every refusal names the flag, file or variable to mend."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from agent_env.training.types import InvalidRow, Row, ServerSettings

__all__ = ["ON_CALL_TIMEOUT", "check_url", "read_row", "read_settings", "read_token"]

WRITER = "python -m agent_env.training.miles URL OUT"
ON_CALL_TIMEOUT = ("fail", "score")
POSITIVE = ("reset_timeout", "call_timeout", "model_timeout", "max_turns", "max_result_chars")


def read_row(prompt: Any, metadata: Any) -> Row:
    """The row that `prompt` (chat messages) and `metadata` (split, index, task_id, tools, server) are. Raises
    InvalidRow."""
    messages = _read_messages(prompt)
    if not isinstance(metadata, Mapping):
        raise InvalidRow(
            f"the row's metadata is {_kind(metadata)}, not an object: pass --metadata-key metadata, and rows that "
            f"`{WRITER}` wrote"
        )
    if missing := [key for key in ("split", "index", "tools", "server") if metadata.get(key) is None]:
        raise InvalidRow(
            f"the row's metadata has no {', '.join(missing)}: pass --metadata-key metadata, and rows that `{WRITER}` "
            "wrote"
        )
    split, index = metadata["split"], metadata["index"]
    if not isinstance(split, str) or not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise InvalidRow(f"the row's split and index are {split!r:.80} and {index!r:.80}: write the rows anew")
    return Row(
        messages=messages,
        tools=_read_tools(metadata["tools"]),
        split=split,
        index=index,
        task_id=str(metadata.get("task_id") or ""),
        server=read_settings(metadata["server"]),
    )


def read_settings(server: Any) -> ServerSettings:
    """A row's `metadata.server`. A missing or null setting has its default. Raises InvalidRow."""
    if not isinstance(server, Mapping):
        raise InvalidRow(f"the row's metadata.server is {_kind(server)}, not an object: write the rows anew")
    given = {key: value for key, value in server.items() if value is not None}
    url, urls = given.pop("url", ""), given.pop("urls", [])
    if not isinstance(url, str) or not isinstance(urls, Sequence) or isinstance(urls, str):
        raise InvalidRow("the row's metadata.server.url must be text, and urls a list of texts: write the rows anew")
    known = {field.name: field for field in dataclasses.fields(ServerSettings)}
    if unknown := sorted(set(given) - set(known)):
        raise InvalidRow(
            f"the row's metadata.server has the unknown setting {unknown[0]!r}: correct it, or update agent-env here "
            "if the rows were written by a newer version"
        )
    settings: dict[str, Any] = {}
    for name, value in given.items():
        default = known[name].default
        settings[name] = _like(value, default if default is not None else "", f"metadata.server.{name}")
    if zero := [name for name in POSITIVE if settings.get(name, 1) == 0]:
        raise InvalidRow(f"the row's metadata.server.{zero[0]} is 0, but must be more: correct it")
    if settings.get("on_call_timeout", "fail") not in ON_CALL_TIMEOUT:
        raise InvalidRow(f"the row's metadata.server.on_call_timeout must be one of {', '.join(ON_CALL_TIMEOUT)}")
    addresses: Sequence[Any] = list(urls) or ([url] if url else [])
    if variable := settings.get("url_var"):
        replaced = [part.strip() for part in os.environ.get(variable, "").split(",") if part.strip()]
        addresses = replaced or addresses
    if not addresses:
        raise InvalidRow("the row's metadata.server names no url: write the rows anew")
    return ServerSettings(urls=tuple(check_url(address) for address in addresses), **settings)


def read_token(settings: ServerSettings) -> str | None:
    """The token that the row's variable holds in this process; None if the row names none. Raises InvalidRow."""
    if settings.token_var is None:
        return None
    token = os.environ.get(settings.token_var, "").strip()
    if not token:
        state = "empty" if settings.token_var in os.environ else "not set"
        raise InvalidRow(
            f"the environment variable {settings.token_var}, which holds the env server's token, is {state} in the "
            "rollout process: set it in the environment that Miles' Ray workers start in"
        )
    return token


def check_url(url: Any) -> str:
    """A server's address without its trailing slash. Raises InvalidRow, never repeating credentials."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_fits = urlsplit(""), False
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname or not port_fits:
        shown = repr(url)[:80] if "@" not in str(url) else "it"
        raise InvalidRow(f"the server's address must read http://HOST:PORT or https://HOST, but {shown} doesn't")
    if parts.username is not None or parts.password is not None:
        raise InvalidRow(
            "the server's address holds credentials: leave them out, and name the variable that holds the token "
            "with --token-var"
        )
    if parts.query or parts.fragment:
        raise InvalidRow(f"the server's address must end with its path, without ? or #: {url}")
    return str(url).rstrip("/")


def _read_messages(prompt: Any) -> tuple[dict[str, Any], ...]:
    if isinstance(prompt, str):
        raise InvalidRow(
            "the prompt is text, not chat messages: leave out --apply-chat-template (the session server applies the "
            "template), and pass --input-key messages"
        )
    if not isinstance(prompt, Sequence) or not prompt:
        raise InvalidRow(f"the prompt is {_kind(prompt)}, not a list of chat messages: pass --input-key messages")
    for message in prompt:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidRow(
                f"the prompt holds {message!r:.80}, which is no chat message: pass --input-key messages, and rows "
                f"that `{WRITER}` wrote"
            )
    try:
        json.dumps(list(prompt), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRow(f"the prompt is not JSON: {error}") from error
    return tuple(dict(message) for message in prompt)


def _read_tools(tools: Any) -> tuple[dict[str, Any], ...]:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise InvalidRow(f"the row's metadata.tools is not JSON ({error}): write the rows anew") from error
    elif isinstance(tools, Sequence):  # --tool-key put a top-level `tools` in place of ours
        tools = list(tools)
    if not isinstance(tools, list):
        raise InvalidRow(f"the row's metadata.tools is {_kind(tools)}, not a list of tools: write the rows anew")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InvalidRow(
                f"the row's metadata.tools holds {tool!r:.80}, which is no OpenAI tool: write the rows anew, and give "
                "them no top-level `tools`, which Miles' --tool-key puts in their place"
            )
    try:
        json.dumps(tools, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRow(f"the row's metadata.tools is not JSON: {error}") from error
    return tuple(dict(tool) for tool in tools)


def _like(value: Any, default: Any, name: str) -> Any:
    """A setting, of its default's type and no less than zero. Raises InvalidRow."""
    kinds = {str: "text", int: "a whole number", float: "a number of seconds"}
    kind = type(default)
    fits = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
    if kind is int and isinstance(value, float) and value.is_integer():  # readers that go through Arrow or pandas
        value, fits = int(value), True
    if not fits or (kind is not str and not (math.isfinite(value) and value >= 0)):
        raise InvalidRow(f"the row's {name} is {value!r:.80}, but must be {kinds[kind]}: correct it")
    return kind(value)


def _kind(value: Any) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"
