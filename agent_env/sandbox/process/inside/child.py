"""One child of a fork server: behind its walls, it becomes the env's server (or a verifier) and never returns."""

from __future__ import annotations

import builtins
import gc
import os
import select
import signal
import socket
import sys
import traceback
import types
from collections.abc import Iterable, Sequence
from typing import NoReturn

from . import confine
from .settings import Settings, Spawn

__all__ = ["NAMES_AT_ONCE", "run_child"]

NAMES_AT_ONCE = 500
"""Names of modules in one message, which may be 128 KiB."""


def run_child(
    settings: Settings,
    spawn: Spawn,
    code: types.CodeType | None,
    channel: int,
    log: int,
    doors: Iterable[int],
    close: Iterable[int],
) -> NoReturn:
    """`channel` is the socket to the server: after the start it is an env's AGENTENV_ACCEPT_FD. `log`: for output.
    `doors`: of this child's cgroups. `close`: descriptors of the fork server's own."""
    status = 1
    try:
        for fd in close:
            os.close(fd)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        for door in doors:
            os.write(door, b"0")
            os.close(door)
        sock = socket.socket(fileno=channel)
        confine.confine_child(settings, spawn, sock)
        _prepare(settings, spawn)
        if spawn.role == "verifier":
            from . import verify  # its asyncio, ssl and logging would cost every env 0.7 MiB

            verify.serve(sock)
        else:
            _run_env(settings, spawn, code, sock)
        status = 0
    except SystemExit as end:
        status = _exit_status(end)
    except BaseException:
        _print_error(code)
    finally:
        status = _finish(status)
        os._exit(status)


def _prepare(settings: Settings, spawn: Spawn) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.enable()
    if "numpy.random" in sys.modules:  # `random` reseeds itself after a fork, this one doesn't
        sys.modules["numpy.random"].seed()
    os.environ.update(spawn.environ)
    if spawn.tmp:
        os.environ.update(TMPDIR=spawn.tmp, HOME=spawn.tmp)
    os.chdir(settings.cwd if spawn.role != "verifier" else spawn.tmp or "/tmp")


def _run_env(settings: Settings, spawn: Spawn, code: types.CodeType | None, sock: socket.socket) -> None:
    if spawn.role == "rehearsal" and not spawn.plain:
        report = sock.dup()
        signal.signal(signal.SIGUSR1, lambda *_: _report_modules(report, settings.own))
    if spawn.tcp and spawn.role == "env":
        sock.close()  # known to bind a port: nothing but its own bytes reaches the server
    else:
        os.environ["AGENTENV_ACCEPT_FD"] = str(sock.fileno())
        sock.set_inheritable(True)
        sock.detach()
    if spawn.plain or code is None:
        command = settings.command
        os.execvpe(command[0], command, os.environ)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=settings.script, __builtins__=builtins)
    sys.modules["__main__"] = main  # where decorators look annotations up
    sys.argv[:] = settings.argv
    exec(code, main.__dict__)


def _report_modules(report: socket.socket, own: Sequence[str]) -> None:
    """All that it has imported, in order: messages of many lines each, then an empty one. A line is a module's name,
    and for the env's own modules a tab and their file."""
    folders = tuple(f"{folder}/" for folder in own)
    files = {name: str(getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items())}
    names = [f"{name}\t{file}" if file.startswith(folders) else name for name, file in files.items()]
    for start in range(0, len(names), NAMES_AT_ONCE):
        select.select([], [report], [])  # the env's server may have made it non-blocking
        report.send("\n".join(names[start : start + NAMES_AT_ONCE]).encode())
    report.send(b"\n")


def _print_error(code: types.CodeType | None) -> None:
    """As Python prints it for a script: from the script's own first line on."""
    kind, error, trace = sys.exc_info()
    start = trace
    while start is not None and start.tb_frame.f_code is not code:
        start = start.tb_next
    traceback.print_exception(kind, error, start or trace)


def _exit_status(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _finish(status: int) -> int:
    """What Python does at a script's end: threads are waited for, then exit handlers run and output is flushed."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return status or 1
    return status
