"""Who may talk to the server: a token on everything but `GET /health`, and no web page of another origin.

Plain ASGI, outermost, so that no route, mounted app or WebSocket can be reached around it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Guard", "check_token"]

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Guard:
    """Lets a request through that carries the token, as `Authorization: Bearer TOKEN` or as the password of
    `Authorization: Basic` (what clients send for `http://token:TOKEN@host`, and all that some can).

    Anything else is answered 401, for a WebSocket before the upgrade. With `token=None` everybody is let through.
    A browser's request that changes something, or opens a WebSocket, from a page of another origin is answered 403
    either way: a page must not drive the envs of whoever looks at it.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        if token is not None:
            check_token(token)
        self.app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _is_health(scope):
            await self.app(scope, receive, send)
            return
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if self._token is not None and not self._carries_token(headers):
            challenge = [(b"www-authenticate", b"Bearer"), (b"www-authenticate", b'Basic realm="agent_env"')]
            await _refuse(scope, send, 401, b"this server needs its token", challenge)
        elif _changes_something(scope) and _from_another_origin(headers):
            await _refuse(scope, send, 403, b"requests from pages of another origin are refused", [])
        else:
            await self.app(scope, receive, send)

    def _carries_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        values = [value for name, value in headers if name == b"authorization"]
        if len(values) != 1 or self._token is None:
            return False
        scheme, _, credentials = values[0].strip().partition(b" ")
        if scheme.lower() == b"basic":
            try:
                _, _, given = base64.b64decode(credentials.strip(), validate=True).partition(b":")
            except binascii.Error:
                return False
        elif scheme.lower() == b"bearer":
            given = credentials.strip()
        else:
            return False
        return hmac.compare_digest(given, self._token)


def check_token(token: str) -> None:
    """Raises ValueError for a token that no client could send, or that guards nothing."""
    if not token.strip():
        raise ValueError("token is empty: give the server a token, or None to serve without one")
    if token != token.strip() or not token.isascii() or not token.isprintable():
        raise ValueError("token can't be sent in a header: use printable ASCII, without spaces around it")


def _is_health(scope: Scope) -> bool:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["type"] == "http" and scope["method"] == "GET" and path == "/health"


def _changes_something(scope: Scope) -> bool:
    return scope["type"] == "websocket" or scope["method"] not in _SAFE_METHODS


def _from_another_origin(headers: list[tuple[bytes, bytes]]) -> bool:
    """Only browsers send Origin. A reverse proxy must pass Host on as it came."""
    origins = [value for name, value in headers if name == b"origin"]
    hosts = [value for name, value in headers if name == b"host"]
    if not origins:
        return False
    if len(origins) != 1 or len(hosts) != 1:
        return True
    try:
        return urlsplit(origins[0].decode("ascii")).netloc.lower() != hosts[0].decode("ascii").lower()
    except ValueError:
        return True


async def _refuse(scope: Scope, send: Send, status: int, text: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    body = b'{"detail":"' + text + b'"}'
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    elif "websocket.http.response" in scope.get("extensions", {}):
        await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:  # a server without that extension turns this into 403, before the upgrade as well
        await send({"type": "websocket.close", "code": 1008})
