"""A stand-in for the Hugging Face Hub's HTTP API: one dataset, its revisions, and the ways of refusing it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Hub", "serve_hub"]


@dataclass
class Hub:
    """What the Hub has: files of one dataset by revision, and which token may read it (None: anyone)."""

    dataset: str = "acme/envs"
    files: dict[str, bytes] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=lambda: {"main": "a" * 40})
    """Branch or tag -> commit."""
    token: str | None = None
    gated: bool = False
    down: bool = False
    url: str = ""
    seen: list[str] = field(default_factory=list)
    """`METHOD path` of each request."""

    def commit(self, revision: str) -> str | None:
        return revision if revision in self.revisions.values() else self.revisions.get(revision)


@contextmanager
def serve_hub(hub: Hub) -> Iterator[Hub]:
    """Serve `hub` on loopback while the block runs; its `url` is set."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        hub.url = f"http://127.0.0.1:{server.server_port}"
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.seen.append(f"{self.command} {path}")
        if hub.down:
            return self.reply(503, b"down")
        if f"/{hub.dataset}" not in path:
            return self.refuse(404, "RepoNotFound")
        if hub.token is not None and self.headers["Authorization"] != f"Bearer {hub.token}":
            return self.refuse(*((403, "GatedRepo") if hub.gated else (401, "RepoNotFound")))
        rest = path.partition(f"/{hub.dataset}/")[2]
        kind, _, rest = rest.partition("/")
        revision, _, name = rest.partition("/")
        commit = hub.commit(revision)
        if commit is None:
            return self.refuse(404, "RevisionNotFound")
        if kind == "revision":
            return self.json({"id": hub.dataset, "sha": commit, "siblings": []})
        if kind == "tree":
            return self.json([self.entry(path, data) for path, data in hub.files.items()])
        if kind == "resolve" and name in hub.files:
            data = hub.files[name]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{_blob(data)}"'}
            return self.reply(200, data, headers)
        return self.refuse(404, "EntryNotFound")

    @staticmethod
    def entry(path: str, data: bytes) -> dict[str, Any]:
        return {"type": "file", "path": path, "oid": _blob(data), "size": len(data)}

    def json(self, value: Any) -> None:
        self.reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def refuse(self, status: int, code: str) -> None:
        self.reply(status, b"{}", {"X-Error-Code": code, "X-Error-Message": "no"})

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _blob(data: bytes) -> str:
    """Git's id of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
