"""A light client of OpenEnv servers: one session on its WebSocket. No server package is imported.

Deadlines are the caller's alone: every wait takes a `timeout` in seconds, and no library default lies underneath. A
connection whose other end vanished without a word is noticed within `PING_INTERVAL + PING_TIMEOUT + CLOSE_TIMEOUT`
seconds. Addresses in the environment (`HTTP_PROXY` and such) are not used: a row's URL says where to go.
"""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from agent_env.openenv.protocol import MAX_MESSAGE_BYTES, Code

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

__all__ = [
    "ConnectionLost",
    "Observation",
    "OpenEnvError",
    "ProtocolError",
    "Refused",
    "ServerError",
    "Session",
    "TooLarge",
    "Unauthorized",
    "Unreachable",
    "http_url",
    "innermost",
    "refusal",
    "tls_context",
]

PING_INTERVAL = 15.0
PING_TIMEOUT = 20.0
CLOSE_TIMEOUT = 2.0


class OpenEnvError(Exception):
    """Something went wrong between this client and a server; str() is one sentence."""


class Unreachable(OpenEnvError):
    """No connection was made, or a proxy answered for a server that is down: worth another try."""


class Refused(OpenEnvError):
    """The server has no room (CAPACITY_REACHED): worth another try."""


class Unauthorized(OpenEnvError):
    """The server refused the token, or wants one."""


class ProtocolError(OpenEnvError):
    """What answered doesn't speak OpenEnv."""


class TooLarge(OpenEnvError):
    """The frame is larger than the protocol carries; it wasn't sent, and the session goes on."""


class ConnectionLost(OpenEnvError):
    """An open session ended. `code` and `reason` are the WebSocket close frame's, 1006 if none came.

    `sent` is False when it was lost before this request was sent."""

    def __init__(self, code: int, reason: str, *, sent: bool = True) -> None:
        self.code = code
        self.reason = reason
        self.sent = sent
        super().__init__(f"the connection was lost (code {code}{': ' + reason if reason else ''})")


class ServerError(OpenEnvError):
    """An error frame: `code` is one of `protocol.Code`, str() the server's message."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{message} ({code})")


@dataclass(frozen=True, slots=True)
class Observation:
    """The answer to a reset or a step."""

    observation: Mapping[str, Any]
    reward: Any
    """As received: a number, a bool or None."""
    done: bool
    metadata: Mapping[str, Any]
    """The reply's own metadata, or the observation's: servers send either or both."""


@functools.cache
def tls_context() -> ssl.SSLContext:
    """The process' client context (loading the certificates takes some 20 ms, so it is made once, when first used)."""
    return ssl.create_default_context()


def http_url(url: str) -> str:
    """The http(s) form of a server's address, without a trailing slash."""
    scheme, found, rest = url.partition("://")
    return f"{ {'ws': 'http', 'wss': 'https'}.get(scheme, scheme) }://{rest.rstrip('/')}" if found else url


class Session:
    """One session of an OpenEnv server, on one WebSocket: requests go one at a time, each gets one reply.

    Requests raise TimeoutError, ConnectionLost, ServerError, ProtocolError, and those that they name. A request that is
    cancelled or misses its timeout leaves the session unusable (its reply may still come): close it.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._busy = False

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        timeout: float,
        wait: float | None = None,
        call_timeout: float | None = None,
        token: str | None = None,
    ) -> Session:
        """Connect. `timeout`: for the connection; `wait`: how long reset may queue for room; `call_timeout`: after
        how long the server gives up on a tool call (all in seconds; None leaves the server's own way).

        Raises Unreachable, Unauthorized or ProtocolError.
        """
        from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI, WebSocketException
        from websockets.version import version

        asked = {"wait": wait, "call_timeout": call_timeout}
        query = urlencode({key: f"{value:.3f}" for key, value in asked.items() if value is not None})
        address = "ws" + http_url(url).removeprefix("http") + "/ws" + (f"?{query}" if query else "")
        options: dict[str, Any] = {}
        if int(version.partition(".")[0]) >= 15:
            options["proxy"] = None  # older versions know no proxies
        if address.startswith("wss:"):
            options["ssl"] = tls_context()

        try:
            socket = await _connect_class()(
                address,
                additional_headers={"Authorization": f"Bearer {token}"} if token else None,
                user_agent_header="agent-env",
                compression=None,
                open_timeout=timeout,
                ping_interval=PING_INTERVAL,
                ping_timeout=PING_TIMEOUT,
                close_timeout=CLOSE_TIMEOUT,
                max_size=MAX_MESSAGE_BYTES,
                **options,
            )
        except InvalidStatus as error:
            raise refusal(url, error.response.status_code, error.response.headers.get("Location")) from error
        except TimeoutError as error:
            raise Unreachable(f"{url} didn't accept a connection within {timeout:.0f} s") from error
        except ssl.SSLCertVerificationError as error:
            raise ProtocolError(f"{url}: its certificate isn't trusted: {error.verify_message}") from error
        except (OSError, EOFError) as error:
            raise Unreachable(f"cannot connect to {url}: {innermost(error)}") from error
        except InvalidURI as error:
            raise ProtocolError(f"{url} is not an address: {error}") from error
        except InvalidHandshake as error:
            cause = error.__cause__
            if isinstance(cause, (OSError, EOFError)):  # the server went away during the handshake
                raise Unreachable(f"cannot connect to {url}: {innermost(error)}") from error
            raise ProtocolError(f"{url} doesn't answer as a WebSocket server: {innermost(error)}") from error
        except WebSocketException as error:
            raise Unreachable(f"cannot connect to {url}: {innermost(error)}") from error
        return cls(socket)

    async def reset(self, *, timeout: float, **data: Any) -> Observation:
        """Begin an episode: `split`, `index`, `episode_id`, ... Raises Refused when no room came free."""
        return _observation(await self._ask({"type": "reset", "data": data}, timeout))

    async def call(self, tool: str, arguments: Mapping[str, Any], *, timeout: float) -> Observation:
        """Call a tool. A failed call is an observation too (`error` in it), as is a failed episode."""
        action = {"type": "call_tool", "tool_name": tool, "arguments": arguments}
        reply = _observation(await self._ask({"type": "step", "data": action}, timeout))
        if (answered := reply.observation.get("tool_name", tool)) != tool:
            raise ProtocolError(f"the call of {tool} was answered by one of {answered!r:.80}")
        return reply

    async def list_tools(self, *, timeout: float) -> list[dict[str, Any]]:
        """The tools of the open turn: [{"name", "description", "input_schema"}]."""
        reply = _observation(await self._ask({"type": "step", "data": {"type": "list_tools"}}, timeout))
        tools = reply.observation.get("tools")
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise ProtocolError(f"list_tools answered no list of tools: {reply.metadata.get('error') or 'nothing'}")
        return tools

    async def state(self, *, timeout: float) -> dict[str, Any]:
        """The episode's state: `episode_id`, `step_count`, and what the server adds."""
        reply = await self._ask({"type": "state"}, timeout)
        if reply["type"] != "state":
            raise ProtocolError(f"state was answered by {reply['type']!r}")
        return dict(reply["data"])

    async def close(self) -> None:
        """End the session; bounded, and never raises but for cancellation."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._socket.close()
        except (TimeoutError, OSError):
            pass
        finally:
            self._socket.transport.abort()

    async def _ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Send one request and take its reply, {"type", "data"}, of any type but error."""
        from websockets.exceptions import ConnectionClosed

        if self._busy:
            raise ConnectionLost(1006, "an earlier request was given up", sent=False)
        frame = json.dumps(request, allow_nan=False)
        if len(frame) > MAX_MESSAGE_BYTES:
            raise TooLarge(f"a message of {len(frame)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
        self._busy, sent = True, False
        try:
            async with asyncio.timeout(timeout):
                try:
                    await self._socket.send(frame)
                    sent = True
                except ConnectionClosed:
                    pass  # a refusal may have come before: it is still to be read
                raw = await self._socket.recv()
        except ConnectionClosed as error:
            close = error.rcvd or error.sent
            code, reason = (close.code, close.reason) if close else (1006, "")
            raise ConnectionLost(code, reason, sent=sent) from error
        self._busy = False
        return _reply(raw)


@functools.cache
def _connect_class() -> type[connect]:
    from websockets.asyncio.client import connect

    class Connect(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc  # following one could carry the token to another host

    return Connect


def refusal(url: str, status: int, location: str | None) -> OpenEnvError:
    """What an HTTP status other than success says."""
    if status in (401, 403):
        return Unauthorized(f"{url} refused the token (HTTP {status})")
    if (status >= 500 and status != 501) or status in (408, 425, 429):
        return Unreachable(f"{url} isn't ready (HTTP {status})")
    if location and 300 <= status < 400:
        return ProtocolError(f"{url} redirects to {location}: use that address")
    return ProtocolError(f"{url} answered HTTP {status}: is an OpenEnv server with tasks there?")


def innermost(error: BaseException) -> str:
    """The innermost cause that says something."""
    said = str(error) or type(error).__name__
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
        said = str(error) or said
    return said


def _reply(raw: str | bytes) -> dict[str, Any]:
    try:
        reply = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the server answered no JSON: {raw[:80]!r}") from error
    if not isinstance(reply, dict) or not isinstance(reply.get("type"), str) or not isinstance(reply.get("data"), dict):
        raise ProtocolError(f"the server answered no OpenEnv frame: {raw[:80]!r}")
    if reply["type"] == "error":
        code, message = str(reply["data"].get("code")), str(reply["data"].get("message"))
        if code == Code.CAPACITY_REACHED:
            raise Refused(message)
        raise ServerError(code, message)
    return reply


def _observation(reply: Mapping[str, Any]) -> Observation:
    data = reply["data"]
    observation, done = data.get("observation"), data.get("done", False)
    if reply["type"] != "observation" or not isinstance(observation, dict) or not isinstance(done, bool):
        raise ProtocolError(f"expected an observation, got a frame of type {reply['type']!r}")
    metadata = data.get("metadata") or observation.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise ProtocolError(f"an observation's metadata is {type(metadata).__name__}")
    return Observation(observation=observation, reward=data.get("reward"), done=done, metadata=metadata)
