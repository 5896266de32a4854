"""HTTP/1.1 requests from bytes, and responses to bytes. No I/O.

Kept to what JSON over a private socket needs: bodies come with Content-Length, and whatever is malformed, ambiguous or
too large is refused with a status and the end of the connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_env.env import jsontext

__all__ = ["MAX_BODY", "MAX_HEAD", "BadRequest", "Request", "RequestParser", "Response", "json_response"]

MAX_HEAD = 16 * 1024
"""Bytes of request line and headers."""
MAX_HEADERS = 64
MAX_BODY = 16 * 1024 * 1024
"""Bytes: what an OpenEnv frame may carry."""

_BEGINNING = re.compile(rb"[A-Z]|\r?\Z")
_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_REASONS = {
    100: "Continue", 200: "OK", 202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 411: "Length Required", 413: "Content Too Large",
    431: "Request Header Fields Too Large", 500: "Internal Server Error",
}  # fmt: skip


class BadRequest(Exception):
    """The bytes are no request that can be served; nothing after them can be read either."""

    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """As sent, without the query."""
    headers: Mapping[str, str]
    """By lower-case name; of a repeated header, the last."""
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self, *, close: bool = False) -> bytes:
        lines = [f"HTTP/1.1 {self.status} {_REASONS[self.status]}", f"Content-Length: {len(self.body)}"]
        if self.body:
            lines.append("Content-Type: application/json")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if close:
            lines.append("Connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Raises TypeError or ValueError if JSON can't hold the value."""
    return Response(status, jsontext.dumps(value), headers or {})


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    path: str
    headers: dict[str, str]
    keep_alive: bool
    length: int


class RequestParser:
    """Bytes in (`feed`), requests out (`next`), one after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._continue = False

    @property
    def buffered(self) -> int:
        """Bytes fed and not yet part of a returned request."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Request | None:
        """The next complete request; None until more is fed. Raises BadRequest; then the parser is of no more use."""
        if self._head is None:
            self._head = self._parse_head()
        head = self._head
        if head is None or len(self._buffer) < head.length:
            return None
        body = bytes(self._buffer[: head.length])
        del self._buffer[: head.length]
        self._head = None
        self._continue = False
        return Request(head.method, head.path, head.headers, body, head.keep_alive)

    def awaits_continue(self) -> bool:
        """True once for a request whose sender waits for `100 Continue` before its body."""
        waits, self._continue = self._continue, False
        return waits

    def _parse_head(self) -> _Head | None:
        while self._buffer.startswith(b"\r\n"):  # RFC 9112, 2.2: some clients end a request with one too many
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD + 4)
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequest(431, f"request line and headers are over {MAX_HEAD} bytes")
            if not _BEGINNING.match(self._buffer) or b"\n\n" in self._buffer:
                raise BadRequest(400, "not an HTTP/1.1 request")  # else its end would be waited for
            return None
        request_line, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        first = _REQUEST_LINE.fullmatch(request_line)
        if first is None:
            raise BadRequest(400, "malformed request line")
        headers = _parse_headers(lines)
        connection = headers.get("connection", "").lower()
        keep_alive = "close" not in connection if first[3] == b"1" else "keep-alive" in connection
        length = _body_length(headers)
        self._continue = bool(length) and headers.get("expect", "").lower() == "100-continue"
        path = first[2].partition(b"?")[0].decode("ascii")
        return _Head(first[1].decode("ascii"), path, headers, keep_alive, length)


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise BadRequest(431, f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise BadRequest(400, "malformed header")
        name, value = header[1].decode("ascii").lower(), header[2].decode("latin-1").strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise BadRequest(400, "two different values of Content-Length")
        headers[name] = value
    return headers


def _body_length(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest(411, "send the body with Content-Length, not with Transfer-Encoding")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(400, "Content-Length is not a number")
    if len(text) > 12 or int(text) > MAX_BODY:
        raise BadRequest(413, f"body is over {MAX_BODY} bytes")
    return int(text)
