"""Envs to run in containers, and a client that speaks just enough HTTP to them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

from agent_env.bundle.model import EnvSpec
from agent_env.sandbox import EnvInstance

__all__ = ["COUNTER", "PROBE", "STUBBORN", "get", "make_env", "request", "run_inside"]

DOCKERFILE = """\
FROM agentenv-python:local
WORKDIR /app
COPY . /app
CMD ["python3", "server.py"]
"""

COUNTER = '''\
"""An env written with agent_env.env: it dials the host."""
from agent_env.env import Env, serve, tool

class Counter(Env):
    """Counts."""

    def __init__(self):
        self.count = 0

    @tool
    def add(self, amount: int) -> str:
        """Add to the counter."""
        self.count += amount
        print("added", amount)
        return str(self.count)

    def get_data(self):
        return {"count": self.count}

serve(Counter)
'''

PROBE = '''\
"""A server that binds a port, as any third-party one, and runs the Python that it is sent."""
import http.server, json, os, traceback

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"path": self.path})

    def do_POST(self):
        code = self.rfile.read(int(self.headers["content-length"])).decode()
        names = {}
        try:
            exec(code, names)
            self.answer({"value": names.get("value")})
        except BaseException as error:
            self.answer({"error": f"{type(error).__name__}: {error}"})

    def answer(self, data):
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass

http.server.ThreadingHTTPServer((os.environ["MCP_HOST"], int(os.environ["MCP_PORT"])), Handler).serve_forever()
'''

STUBBORN = '''\
"""A server of few lines, since many are started: it dials the host and answers everything. It ignores signals, leaves a
process of another name and session behind, and every second one goes on when the host is gone."""
import os, signal, socket, threading, time

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    open("/proc/self/comm", "w").write("kworker/0:1")
    time.sleep(99999)

def dial(greeting):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["AGENTENV_DIAL"])
    connection.sendall(greeting)
    return connection

def answer():
    connection = dial(b"http\\n")
    while connection.recv(65536):
        time.sleep(0.02)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")

control = dial(b"control\\n")
while asked := control.recv(100):
    for _ in asked:
        threading.Thread(target=answer, daemon=True).start()
while os.urandom(1)[0] % 2:
    time.sleep(99999)
'''


def make_env(folder: Path, server: str, *, name: str = "env", dockerfile: str = DOCKERFILE) -> EnvSpec:
    """Write an env's folder. The same content has the same digest, so its image is built once a session."""
    folder.mkdir(exist_ok=True)
    (folder / "server.py").write_text(server)
    (folder / "Dockerfile").write_text(dockerfile)
    digest = hashlib.sha256((server + dockerfile).encode()).hexdigest()
    return EnvSpec(name=name, folder=folder, digest=digest, dockerfile=folder / "Dockerfile")


async def request(env: EnvInstance, method: str, path: str, body: bytes = b"", timeout: float = 30.0) -> bytes:
    """One request on a connection of its own; returns the answer's body. ConnectionError if it ends too early."""
    loop = asyncio.get_running_loop()
    connection = await env.connect()
    try:
        async with asyncio.timeout(timeout):
            head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:18765\r\nContent-Length: {len(body)}\r\n\r\n"
            await loop.sock_sendall(connection, head.encode() + body)
            data = b""
            while b"\r\n\r\n" not in data:
                data += await _more(connection)
            header, _, found = data.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in header.split(b"\r\n")[1:])
            while len(found) < int(fields[b"content-length"]):
                found += await _more(connection)
            return found
    finally:
        connection.close()


async def _more(connection: Any) -> bytes:
    data = await asyncio.get_running_loop().sock_recv(connection, 65536)
    if not data:
        raise ConnectionError("the connection ended")
    return data


async def get(env: EnvInstance, path: str) -> dict[str, Any]:
    return dict(json.loads(await request(env, "GET", path)))


async def run_inside(env: EnvInstance, code: str, timeout: float = 30.0) -> Any:
    """Run Python in a PROBE; returns the variable `value`, or the text of the error that it raised."""
    answer = json.loads(await request(env, "POST", "/", code.encode(), timeout))
    return answer.get("error", answer.get("value"))
