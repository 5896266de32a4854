"""The program that waits as process 1 of each env."""

from __future__ import annotations

import os
import platform
import signal
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_env.sandbox.process.inside import pausing


@pytest.fixture
def waiting() -> Iterator[int]:
    """It, as a child that ignores its own children's ends."""
    code = pausing.program()
    if code is None:
        pytest.skip(f"no program for {platform.machine()}")
    fd = os.memfd_create("pausing", os.MFD_CLOEXEC)
    os.write(fd, code)
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            if os.fork() == 0:
                os._exit(0)
            os.execve(fd, ("waits",), {})
        finally:
            os._exit(1)
    try:
        for _ in range(500):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"waits\0":
                break
            time.sleep(0.01)
        yield pid
    finally:
        os.close(fd)
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_it_waits_and_collects_what_ends_below_it(waiting: int) -> None:
    assert Path(f"/proc/{waiting}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"
    children = Path(f"/proc/{waiting}/task/{waiting}/children")
    for _ in range(1000):  # its child may not have been run yet
        if not children.read_text():
            break
        time.sleep(0.01)
    assert children.read_text() == ""


def test_it_costs_next_to_no_memory(waiting: int) -> None:
    lines = Path(f"/proc/{waiting}/smaps_rollup").read_text().splitlines()
    assert sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) <= 16


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_its_last_jump_goes_back_to_its_first_instruction(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program = pausing.program()
    assert program is not None
    code = program[120:]
    if machine == "x86_64":
        assert struct.unpack("b", code[-1:])[0] == -len(code)
    else:
        (jump,) = struct.unpack("<I", code[-4:])
        words = (jump & 0x03FF_FFFF) - (1 << 26)
        assert words * 4 == -(len(code) - 4)


def test_unknown_machines_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert pausing.program() is None
