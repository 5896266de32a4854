"""Runs inside a container, mounted read-only, under whatever Python 3 the image has. Standard library only.

inside.py relay HOST_SOCKET PORT[,PORT...] COMMAND...
    Starts the server COMMAND. Once it listens on one of the ports of 127.0.0.1, dials the host and says "relay";
    for every byte "C" that comes on that connection it opens another one, says "http" and joins it to the port.
    Ends with the server's exit status, and ends the server when the host is gone.

inside.py verify HOST_SOCKET
    Dials the host, says "verify" and waits for a verifier as a line of JSON. Runs it, with 127.0.0.1:18765 joined
    to the host (each connection says "http"), and answers with a line.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import threading
import time

TYPE_CHECKING = False  # the typing module would take as long to load as all else here
if TYPE_CHECKING:
    from collections.abc import Callable

PORT = 18765
CHUNK = 65536


def dial(path: str, greeting: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        connection.sendall(greeting)
    except OSError:
        connection.close()
        raise
    return connection


def start_thread(function: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy until the end, and pass the end on."""
    try:
        while True:
            data = source.recv(CHUNK)
            if not data:
                break
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def join(one: socket.socket, other: socket.socket) -> None:
    """Copy both ways until both have ended, then close both."""
    back = threading.Thread(target=pump, args=(other, one), daemon=True)
    back.start()
    pump(one, other)
    back.join()
    one.close()
    other.close()


def relay(path: str, ports: list[int], command: list[str]) -> None:
    threading.stack_size(256 * 1024)
    try:
        server = os.spawnvp(os.P_NOWAIT, command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error}")
    start_thread(serve_host, path, ports, server)
    _, status = os.waitpid(server, 0)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def serve_host(path: str, ports: list[int], server: int) -> None:
    address = wait_for_server(ports)
    try:
        control = dial(path, b"relay\n")
        while True:
            asked = control.recv(1024)
            if not asked:
                break
            for _ in range(asked.count(b"C")):
                start_thread(connect_host, path, address)
    except OSError:
        pass
    os.kill(server, signal.SIGKILL)


def wait_for_server(ports: list[int]) -> tuple[str, int]:
    pause = 0.005
    while True:
        for port in ports:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return ("127.0.0.1", port)
            except OSError:
                pass
        time.sleep(pause)
        pause = min(pause * 1.2, 0.1)


def connect_host(path: str, address: tuple[str, int]) -> None:
    server = host = None
    try:
        host = dial(path, b"http\n")
        server = socket.create_connection(address, 10)
    except OSError:
        pass
    if server is None or host is None:  # an end on the host's side is the answer to who asked
        for end in (server, host):
            if end is not None:
                end.close()
        return
    server.settimeout(None)
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    join(host, server)


def verify(path: str) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", PORT))
    listener.listen(64)
    start_thread(serve_verifier, path, listener)
    host = dial(path, b"verify\n")
    if not host.recv(1, socket.MSG_PEEK):
        return  # never needed
    importlib.import_module("agent_env.verifying").serve(host)  # see stage_sdk


def serve_verifier(path: str, listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            host = dial(path, b"http\n")
        except OSError:
            connection.close()
            continue
        start_thread(join, connection, host)


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        relay(sys.argv[2], [int(port) for port in sys.argv[3].split(",")], sys.argv[4:])
    else:
        verify(sys.argv[2])
