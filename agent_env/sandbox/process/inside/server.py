"""A fork server's loop: it takes orders from the control socket and forks children.

Orders are JSON with an "op" and an "id"; each is answered by {"re": id, ...}. When a child has ended the server is told
so: {"ended": id, "status": as of waitpid, "cpu": seconds}. The end of the control socket is the end of the server: this
process ends too, and with it, being PID 1 of its namespace, every child and all that they started.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import types
from typing import Any

from . import child, confine, linux, passing, seccomp
from .init import init_program, start_init
from .preload import Before, cache_bytecode, preload
from .settings import Settings, Spawn

__all__ = ["ForkLoop", "main"]


def main(fd: int) -> None:
    control = socket.socket(fileno=fd)
    control.set_inheritable(False)
    message, _ = passing.receive(control)
    settings = Settings(**json.loads(message))
    if not settings.command:  # it serves verifiers; from behind the walls the file can't be seen
        from . import verify  # noqa: F401
    confine.confine_server(settings)
    os.environ.clear()
    os.environ.update(settings.environ)
    sys.path[:0] = settings.path
    ForkLoop(control, settings).run()


class ForkLoop:
    def __init__(self, control: socket.socket, settings: Settings) -> None:
        self._control = control
        self._settings = settings
        self._children: dict[int, tuple[int, int]] = {}
        """Process id -> the order's id, and the process 1 of its namespace if that is another one."""
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._namespaces = settings.tier == "namespaces"
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._own_net = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._init = init_program()
        self._code: types.CodeType | None = None
        """The env's script, compiled once. It runs in children only."""

    def run(self) -> None:
        if self._settings.script:
            with open(self._settings.script, "rb") as file:
                self._code = compile(file.read(), self._settings.script, "exec", dont_inherit=True)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        seccomp.built(seccomp.BASE)
        gc.collect()
        gc.disable()
        gc.freeze()  # what is here already stays shared: a collection in a child doesn't write to it
        self._answer({"ready": True, "uid": os.geteuid()})
        control = self._control.fileno()
        while True:
            ready, _, _ = select.select([control, self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if control in ready:
                message, fds = passing.receive(self._control)
                if not message:
                    os._exit(0)  # without a PID namespace the children end by their parent-death signal
                try:
                    self._obey(json.loads(message), fds)
                finally:
                    for fd in fds:
                        os.close(fd)

    def _answer(self, reply: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        passing.send(self._control, json.dumps(reply).encode(), fds)

    def _obey(self, order: dict[str, Any], fds: list[int]) -> None:
        number = order["id"]
        match order["op"]:
            case "spawn":
                self._spawn(number, Spawn.parse(order["spawn"]), *fds)
            case "sockets":
                linux.setns(fds[0], linux.NEWNET)
                made = passing.unconnected(order["count"])
                linux.setns(self._own_net, linux.NEWNET)
                self._answer({"re": number}, tuple(sock.fileno() for sock in made))
                for sock in made:
                    sock.close()
            case "bytecode":
                cache_bytecode(order["files"])
                self._answer({"re": number})
            case "preload":
                before = Before()
                preload(order["modules"], self._settings.own)
                self._answer({"re": number, "refused": before.why_not_fork()})

    def _spawn(self, number: int, spawn: Spawn, channel: int, log: int, *doors: int) -> None:
        init = 0
        try:
            if self._namespaces:
                linux.unshare(linux.NEWPID)  # of the next children, not of this process
                if spawn.role != "verifier":
                    init = start_init(spawn.name, self._init)
            pid = os.fork()
            if pid == 0:
                ours = (self._wake, self._woken, self._own_pids, self._own_net, self._control.detach())
                if self._init >= 0:
                    os.close(self._init)
                child.run_child(self._settings, spawn, self._code, channel, log, doors, ours)
        except OSError as error:
            if init:
                os.kill(init, signal.SIGKILL)
            self._answer({"re": number, "error": f"fork: {error.strerror}"})
            return
        finally:
            if self._namespaces:
                linux.setns(self._own_pids, linux.NEWPID)
        self._children[pid] = (number, init)
        handles = tuple(os.pidfd_open(each) for each in (pid, init) if each)
        self._answer({"re": number}, handles)
        for handle in handles:
            os.close(handle)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._children:
                number, init = self._children.pop(pid)
                if init:
                    os.kill(init, signal.SIGKILL)  # and with it whatever the env's server left behind
                self._answer({"ended": number, "status": status, "cpu": used.ru_utime + used.ru_stime})
