"""The env behind `deploy_sandbox`: an empty place with a shell. The agent has `bash`; the task's steps put files there
and probe what became of them, through operations that no tool reaches."""

from __future__ import annotations

import asyncio
import base64
import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from agent_env.env import Env, Field, ToolError, extension, serve, tool

URI = "urn:agent-env:workspace/v1"
HOME = "/app"
SEARCH = "import re, sys; sys.exit(not re.search(sys.argv[1], open(sys.argv[2], errors='replace').read()))"
KEPT_BYTES = 512 * 1024
"""Of the beginning of a command's output, and as much of its end."""


class Workspace(Env):
    """A file system and a shell."""

    name = "workspace"

    def __init__(self) -> None:
        self._shell = Shell()

    @tool
    async def bash(self, command: Annotated[str, Field("a command line for bash", min_length=1)]) -> str:
        """Run a command with bash, in /app, and answer what it wrote to standard output and standard error.

        Each call is a new shell. Files stay, and what runs in the background goes on.
        """
        finished = await self._shell.run(["bash", "-c", command], HOME)
        if finished.status != 0:
            raise ToolError("\n".join(filter(None, (finished.output.removesuffix("\n"), _ended(finished)))))
        return finished.output

    @extension(URI)
    def set_up(self, folders: list[str], environ: dict[str, str]) -> None:
        """Make the folders that may be written, and give every command these environment variables."""
        os.environ.update(environ)
        for folder in folders:
            try:
                # A process sandbox links it into its /tmp, where nothing is yet.
                os.makedirs(os.path.realpath(folder), exist_ok=True)
            except OSError as error:
                raise ToolError(f"{folder} can't be made in this sandbox: {error.strerror}") from error
            if not os.access(folder, os.W_OK):
                raise ToolError(f"{folder} can't be written in this sandbox")

    @extension(URI)
    def put(self, path: str, content: str, append: bool, executable: bool) -> None:
        """Write a file, or a further piece of it. content: base64."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab" if append else "wb") as file:
            file.write(base64.b64decode(content))
        os.chmod(path, 0o755 if executable else 0o644)

    @extension(URI)
    async def check(self, criterion: dict[str, Any], base_dir: str, seconds: float) -> dict[str, Any]:
        """Whether one criterion of a verify_sandbox step holds, and why (not)."""
        kind = criterion["type"]
        paths = [os.path.join(base_dir, path) for path in criterion.get("paths", ())]
        if kind in ("probe_file_exists", "probe_dir_exists"):
            there = os.path.exists if kind == "probe_file_exists" else os.path.isdir
            missing = [path for path in paths if not there(path)]
            return _holds(not missing, f"missing: {', '.join(missing)}" if missing else "all are there")
        if kind == "probe_file_contains":
            if not os.path.isfile(paths[0]):  # noqa: ASYNC240 (a local file)
                return _holds(False, f"there is no file {paths[0]}")
            # In a process of its own: an expression can take for ever on a text that the agent wrote.
            command = [sys.executable, "-I", "-S", "-c", SEARCH, criterion["expected"], paths[0]]
        else:
            command = ["bash", "-c", f"({criterion['bash_cmd']}\n)"]
        if not os.path.isdir(base_dir):  # noqa: ASYNC240
            return _holds(False, f"there is no folder {base_dir}")
        finished = await self._shell.run(command, base_dir, seconds)
        why = "timed out" if finished.timed_out else _ended(finished)
        return _holds(finished.status == 0, f"{why}: {finished.output[-200:]}".removesuffix(": "))


def _ended(finished: Finished) -> str:
    return f"exit code {finished.status}" if finished.status >= 0 else f"killed by signal {-finished.status}"


def _holds(result: bool, justification: str) -> dict[str, Any]:
    return {"result": result, "score": float(result), "justification": justification}


@dataclass(frozen=True, slots=True)
class Finished:
    status: int
    """Exit status; -N for signal N, as subprocess has it."""
    output: str
    """Standard output and error, as they came."""
    timed_out: bool = False


class Shell:
    """Runs commands, several at a time if need be, and buries the dead: in a container the server is process 1, so
    every orphan becomes its child."""

    def __init__(self) -> None:
        self._guard = _guard()
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, command: Sequence[str], cwd: str, seconds: float | None = None) -> Finished:
        """Run one command to its end; what it started in the background goes on.

        After `seconds`, and when it is cancelled, the command's process group is killed. Raises OSError if it can't be
        started.
        """
        self._watch_children()
        loop = asyncio.get_running_loop()
        output = _Output()
        try:
            process = subprocess.Popen(  # noqa: ASYNC220 (asyncio's own would race with _bury for its children)
                list(command),
                cwd=cwd,
                env={**os.environ, "PWD": cwd},  # else a shell shows where a link leads
                stdin=subprocess.DEVNULL,
                stdout=output.theirs,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._guard,  # safe: the server has one thread
            )
            process.returncode = 0  # else its destructor would wait for it, and that is _bury's
            ended = self._waiting[process.pid] = loop.create_future()
            output.follow(loop)
            try:
                async with asyncio.timeout(seconds):
                    return Finished(await ended, output.text())
            except TimeoutError:
                return Finished(-signal.SIGKILL, output.text(), timed_out=True)
            finally:
                if self._waiting.pop(process.pid, None) is not None:
                    os.killpg(process.pid, signal.SIGKILL)  # not buried yet, so its group is there
        finally:
            output.close(loop)

    def _watch_children(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.add_signal_handler(signal.SIGCHLD, self._bury)

    def _bury(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            waiting = self._waiting.pop(pid, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(os.waitstatus_to_exitcode(status))


class _Output:
    """A pipe's reading end, and what came out of it: the first bytes and the last."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.theirs, True)
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def follow(self, loop: asyncio.AbstractEventLoop) -> None:
        os.close(self.theirs)
        self.theirs = -1
        loop.add_reader(self.ours, self._read, loop)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self.ours)
        os.close(self.ours)
        if self.theirs >= 0:
            os.close(self.theirs)

    def text(self) -> str:
        """All that is there. A process in the background may keep the pipe open for ever, so nothing waits for its end,
        and it may write for ever, so one more look has to do."""
        self._take(KEPT_BYTES)
        cut = f"\n... {self._left_out} bytes left out ...\n".encode() if self._left_out else b""
        return bytes(self._head + cut + self._tail).decode("utf-8", "replace")

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._take(65536):
            loop.remove_reader(self.ours)

    def _take(self, most: int) -> bool:
        """Read once; False at the pipe's end."""
        try:
            data = os.read(self.ours, most)
        except BlockingIOError:
            return True
        room = KEPT_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if (over := len(self._tail) - KEPT_BYTES) > 0:
            del self._tail[:over]
            self._left_out += over
        return bool(data)


KILLS = {"x86_64": (0xC000003E, 62, 200, 234), "aarch64": (0xC00000B7, 129, 130, 131)}
"""By machine: its name to the kernel (AUDIT_ARCH_*), and the numbers of kill, tkill and tgkill."""
PIDFD_SEND_SIGNAL = 424


def _guard() -> Callable[[], None] | None:
    """What a command's process does first, so that no `pkill python` of the agent's ends this server, or the process 1
    above it: a seccomp filter that refuses signals to the two, and to all at once (seccomp(2), bpf's classic form).

    None on machines whose system calls it doesn't know. It also shuts this process's memory to the commands.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/PID/mem is for the superuser only
    known = KILLS.get(os.uname().machine)
    if known is None:
        return None
    machine, *kills = known
    shielded = sorted({number & 0xFFFFFFFF for pid in (1, os.getpid(), os.getpgrp()) for number in (pid, -pid)} - {0})
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    check, last = 5 + len(kills), 7 + len(kills) + len(shielded)  # lines: where the check begins, and `refuse`
    lines = [(load, 0, 0, 4), (equal, 2, check - 1, machine), (load, 0, 0, 0), (equal, last, 4, PIDFD_SEND_SIGNAL)]
    lines += [(equal, check, 5 + place, number) for place, number in enumerate(kills)]
    lines += [(give, 0, 0, allow), (load, 0, 0, 16)]  # 16: the low half of the first argument
    lines += [(equal, last, check + 2 + place, number) for place, number in enumerate(shielded)]
    lines += [(give, 0, 0, allow), (give, 0, 0, refuse)]
    # A comparison names the lines to go on from; the kernel counts from the one after it.
    program = [
        (code, then - here - 1, other - here - 1, value) if code == equal else (code, 0, 0, value)
        for here, (code, then, other, value) in enumerate(lines)
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    whole = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))

    def install() -> None:
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(whole), 0, 0):  # NO_NEW_PRIVS, SET_SECCOMP
            raise OSError(ctypes.get_errno(), "no seccomp filter can be installed")
        assert code  # the program lives as long as its address is used

    return install


if __name__ == "__main__":
    serve(Workspace)
