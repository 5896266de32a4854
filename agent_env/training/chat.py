"""One rollout's chat with the trainer's session: raw JSON over HTTP, one request at a time.

No library limit lies underneath: `timeout`, the caller's, is the only one, over all tries of one request. A request is
sent again only if the session can't have recorded it: after a failed connect, or an answer that says it failed. After a
read timeout, or a connection lost once bytes were sent, it may have been recorded, and sending it again would change
the recorded past; that is an error. Which answers mean what was seen with the session server of radixark/miles at
31f1ca961 (2026-08-21) and SGLang 0.5.16.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent_env.openenv.client import innermost, tls_context
from agent_env.training.backoff import delays
from agent_env.training.history import History
from agent_env.training.types import EndReason, RolloutFailed

if TYPE_CHECKING:
    import httpcore

__all__ = ["ChatSession", "ContextOverflow", "Reply", "ToolCall", "read_reply"]

IDLE_REUSE = 2.0
"""Seconds that an idle connection is used again: less than any server's keep-alive, so that none is used while the
server closes it, which would lose a request."""
TRIES_500 = 3
"""A 500 is mostly a bug, which doesn't go away; 502, 503 and such are tried until the timeout."""
HEADERS: dict[bytes | str, bytes | str] = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": "agent-env",
}
SHOWN = 300
"""Characters of an answer that an error quotes."""


class ContextOverflow(Exception):
    """The session refused the request because the model's context is used up."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: Any
    """As received: usually text, but engines send none, null and duplicates."""
    name: Any
    """As received: the name of a tool if it is text."""
    arguments: Any
    """As received: JSON text from a conforming server."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One chat completion."""

    message: Mapping[str, Any]
    """choices[0].message, as received."""
    text: str
    """The message's content; "" for null."""
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str | None
    total_tokens: int | None
    """usage.total_tokens: of the request and its answer."""


class ChatSession:
    """Chat completions at `base_url`, with `tools` and `request_kwargs` the same in every request.

    `api_key`: for an endpoint that wants one; a trainer's session does not. Raises ValueError or TypeError if `tools`
    or `request_kwargs` are no JSON. Close it when done.
    """

    def __init__(
        self,
        base_url: str,
        *,
        tools: Sequence[Mapping[str, Any]],
        request_kwargs: Mapping[str, Any] | None = None,
        api_key: str | None = None,
    ) -> None:
        base = base_url.rstrip("/")
        self.url = f"{base}/chat/completions" if base.endswith("/v1") else f"{base}/v1/chat/completions"
        kept = {key: value for key, value in (request_kwargs or {}).items() if key not in ("messages", "tools")}
        self._head = json.dumps({"model": "default", **kept}, allow_nan=False)[:-1]
        self._headers = {**HEADERS, "Authorization": f"Bearer {api_key}"} if api_key else HEADERS
        self._tail = f', "tools": {json.dumps(list(tools), allow_nan=False)}}}' if tools else "}"
        self._pool: httpcore.AsyncConnectionPool | None = None
        self._address: httpcore.URL

    async def complete(self, history: History, *, timeout: float) -> Reply:
        """The model's next message. `timeout`: seconds, over all tries.

        Raises ContextOverflow, and RolloutFailed (MODEL_TIMEOUT, MODEL_ERROR, ABORTED).
        """
        body = f'{self._head}, "messages": {history.json()}{self._tail}'.encode()
        began = asked_at = time.monotonic()
        trouble, tries = "", 0
        try:
            async with asyncio.timeout(timeout):
                for delay in delays(0.2, 10.0):
                    tries, asked_at = tries + 1, time.monotonic()
                    try:
                        return await self._try(body, tries)
                    except _TryAgain as again:
                        trouble, after = str(again), again.after
                    await asyncio.sleep(max(delay, after))
        except TimeoutError:
            if trouble and asked_at - began > timeout / 2:
                message = f"the session failed for {timeout:g} s (model_timeout), {tries} times, last: {trouble}"
                raise RolloutFailed(EndReason.MODEL_ERROR, message) from None
            said = f"; before: {trouble}" if trouble else ""
            message = f"no reply from {self.url} within model_timeout, {timeout:g} s{said}"
            raise RolloutFailed(EndReason.MODEL_TIMEOUT, message) from None
        raise RuntimeError("delays never end")

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.aclose()

    async def _try(self, body: bytes, tries: int) -> Reply:
        import httpcore

        from agent_env.training import wire

        try:
            if self._pool is None:
                self._pool, self._address = _new_pool(self.url), _address(self.url)
            # httpx' own layer: a client on top would add cookies, redirects and most of a millisecond to each request.
            answer = await self._pool.request("POST", self._address, headers=self._headers, content=body)
        except httpcore.ConnectError as error:
            message = f"cannot connect to the session at {self.url}: {innermost(error)}"
            if isinstance(error, wire.NotTrusted):
                raise RolloutFailed(EndReason.MODEL_ERROR, message) from error
            raise _TryAgain(message) from error
        except (ValueError, httpcore.UnsupportedProtocol) as error:
            raise RolloutFailed(EndReason.MODEL_ERROR, f"base_url {self.url!r} is not an address: {error}") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            message = f"the connection to the session was lost before its answer came: {innermost(error)}"
            raise RolloutFailed(EndReason.MODEL_ERROR, message) from error
        if answer.status == 200:
            return read_reply(answer.content)
        await self.close()  # some servers close the connection after an error, and say nothing
        after = next(
            (value.decode("latin-1") for name, value in answer.headers if name.lower() == b"retry-after"), None
        )
        raise _refusal(answer.status, answer.content, after, tries)


class _TryAgain(Exception):
    """The request wasn't recorded and may be sent again, `after` seconds from now at the earliest."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        self.after = after
        super().__init__(message)


def read_reply(body: bytes) -> Reply:
    """A 200 answer's completion. Raises RolloutFailed (MODEL_ERROR) naming what is wrong with it."""
    try:
        completion = json.loads(body, parse_constant=_refuse_constant)
        choice = _get(_get(completion, "choices", list), 0, dict)
        message = _get(choice, "message", dict)
        json.dumps(message, allow_nan=False)  # it has to go back as it came
        if message.get("role") != "assistant":
            raise ValueError(f"its message has the role {message.get('role')!r:.40}")
        content = message.get("content")
        if not isinstance(content, str | None):
            raise ValueError(f"its message's content is no text but {type(content).__name__}")
        calls = _get(message, "tool_calls", list) if message.get("tool_calls") is not None else []
        tool_calls = tuple(_tool_call(call) for call in calls)
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        shown = body[:SHOWN].decode(errors="replace")
        message_ = (
            f"the session's answer is no chat completion: {what}; it begins {shown!r}"
            if body
            else ("the session's answer is empty")
        )
        raise RolloutFailed(EndReason.MODEL_ERROR, message_) from error
    usage = completion.get("usage")
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    finish = choice.get("finish_reason")
    return Reply(
        message=message,
        text=content or "",
        tool_calls=tool_calls,
        finish_reason=finish if isinstance(finish, str) else None,
        total_tokens=total if isinstance(total, int) and not isinstance(total, bool) else None,
    )


def _refusal(status: int, body: bytes, retry_after: str | None, tries: int) -> Exception:
    """What an answer other than 200 means."""
    said = body.decode(errors="replace").strip()
    reason = f"the session answered HTTP {status}: {_reason(said)}"
    if status == 503 and "abort" in said.lower():
        return RolloutFailed(EndReason.ABORTED, reason)
    if status == 400 and re.search(r"context.{0,3}length|context window|maximum context", said, re.IGNORECASE):
        return ContextOverflow(reason)
    # A gateway's page (HTML, 504) or an empty body doesn't say whether the session got the request.
    own_answer = bool(said) and not said.startswith("<") and status != 504
    hopeless = status == 500 and (tries >= TRIES_500 or "prefix mismatch" in said)
    if (status >= 500 and own_answer and not hopeless) or status in (408, 425, 429, 503):
        after = float(retry_after) if retry_after and re.fullmatch(r"\d{1,4}", retry_after) else 0.0
        return _TryAgain(reason, after)
    return RolloutFailed(EndReason.MODEL_ERROR, reason)


def _reason(said: str) -> str:
    """The sentence in an error's body: {"error": text}, {"error": {"message": text}}, {"message": text}, or its
    beginning."""
    try:
        body = json.loads(said)
    except (ValueError, RecursionError):
        body = None
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and key in body:
            body = body[key]
    return (body if isinstance(body, str) and body else said)[:SHOWN] or "(no body)"


def _tool_call(call: Any) -> ToolCall:
    if not isinstance(call, dict):
        raise ValueError(f"a tool call is no object but {type(call).__name__}")
    function = call.get("function")
    if not isinstance(function, dict):
        return ToolCall(call.get("id"), None, None)
    return ToolCall(call.get("id"), function.get("name"), function.get("arguments"))


def _get(holder: Any, key: str | int, kind: type) -> Any:
    """holder[key], which must be of a kind. Raises ValueError."""
    try:
        value = holder[key]
    except (KeyError, IndexError, TypeError):
        raise ValueError(f"it has no {key if isinstance(key, str) else 'choice'}") from None
    if not isinstance(value, kind):
        raise ValueError(f"its {key if isinstance(key, str) else 'choice'} is {type(value).__name__}")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}")


def _address(url: str) -> httpcore.URL:
    """Raises ValueError for what is no address."""
    import httpcore
    import httpx

    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(str(error)) from None
    return httpcore.URL(scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path)


def _new_pool(url: str) -> httpcore.AsyncConnectionPool:
    """One rollout's own: nothing is shared between rollouts or event loops, and no pool is searched."""
    import httpcore

    from agent_env.training import wire

    keepalive = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]  # a session host that vanished is noticed, in the end
    if hasattr(socket, "TCP_KEEPIDLE"):
        keepalive += [
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 5),
        ]
    return httpcore.AsyncConnectionPool(
        ssl_context=tls_context() if url.startswith("https:") else None,
        max_connections=None,
        max_keepalive_connections=1,
        keepalive_expiry=IDLE_REUSE,
        socket_options=keepalive,
        network_backend=wire.Backend(),
    )
