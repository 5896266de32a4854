"""A Docker daemon that answers as it is told: for faults that a real one shows once a year."""

from __future__ import annotations

import http.server
import json
import re
import socketserver
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["FakeDaemon"]

Answer = tuple[int, Any]


class FakeDaemon:
    """Listens at `address` until closed. `answers` maps "METHOD /path" patterns to functions of the request's body
    that return a status and JSON, and may sleep or raise ConnectionAbortedError to drop the connection."""

    def __init__(self, folder: Path, api_version: str = "1.41") -> None:
        self.address = f"unix://{folder}/docker.sock"
        self.requests: list[str] = []
        self.containers: set[str] = set()
        self.created = threading.Event()
        """A slow create has been asked for."""
        image = {"Id": "sha256:1", "Config": {"Cmd": ["python3", "server.py"]}}
        self.answers: dict[str, Callable[[Any], Answer]] = {
            "GET /version": lambda _: (200, {"ApiVersion": api_version}),
            "GET /info": lambda _: (200, {"NCPU": 2, "SecurityOptions": ["name=seccomp"]}),
            "GET /containers/json": lambda _: (200, []),
            "GET /networks": lambda _: (200, []),
            "GET /images/.*/json": lambda _: (200, image),
            "POST /containers/create": lambda _: (201, {"Id": "c1"}),
        }
        self._server = _Server(str(folder / "docker.sock"), _handler(self))
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fail(self, request: str, status: int, message: str) -> None:
        self.answers[request] = lambda _: (status, {"message": message})

    def answer(self, method: str, path: str, query: str, body: bytes) -> Answer:
        request = f"{method} {re.sub(r'^/v[0-9.]+', '', path)}"
        self.requests.append(f"{request}?{query}")
        if method == "DELETE" and "/containers/" in path:
            name = path.rpartition("/")[2]
            if name not in self.containers:
                return 404, {"message": f"No such container: {name}"}
            self.containers.discard(name)
            return 204, None
        for pattern, function in self.answers.items():
            if re.fullmatch(pattern, request):
                return function(json.loads(body) if body.startswith(b"{") else None)  # a build sends an archive
        return 404, {"message": f"no such thing: {request}"}

    def slow_create(self, seconds: float) -> None:
        """The container is there once the answer is due, whether or not somebody still waits for it."""

        def create(_: Any) -> Answer:
            name = re.findall(r"create\?name=([\w-]+)", self.requests[-1])[0]
            self.created.set()
            time.sleep(seconds)
            self.containers.add(name)
            return 201, {"Id": "c1"}

        self.answers["POST /containers/create"] = create


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the test's."""


def _handler(daemon: FakeDaemon) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            path, _, query = self.path.partition("?")
            try:
                status, answer = daemon.answer(self.command, path, query, body)
            except ConnectionAbortedError:
                self.close_connection = True
                return
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the standard library's names

    return Handler
