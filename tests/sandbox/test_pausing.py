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
def waiting() -> Iterator[tuple[int, int]]:
    """Its process id, with a child that it was left with, and a descriptor: the child ends when that is closed."""
    code = pausing.program()
    if code is None:
        pytest.skip(f"no program for {platform.machine()}")
    fd = os.memfd_create("pausing", os.MFD_CLOEXEC)
    os.write(fd, code)
    until, hold = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(hold)
            if os.fork() == 0:
                os.read(until, 1)
                os._exit(0)
            os.execve(fd, ("waits",), {})
        finally:
            os._exit(1)
    try:
        os.close(until)
        for _ in range(500):
            if Path(f"/proc/{pid}/comm").read_text() == "waits\n":
                break
            time.sleep(0.01)
        yield pid, hold
    finally:
        os.close(fd)
        os.close(hold)
        os.kill(pid, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_it_waits_under_its_own_name(waiting: tuple[int, int]) -> None:
    assert Path(f"/proc/{waiting[0]}/cmdline").read_bytes() == b"waits\0"
    assert Path(f"/proc/{waiting[0]}/comm").read_text() == "waits\n"
    assert Path(f"/proc/{waiting[0]}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def test_it_collects_what_ends_below_it(waiting: tuple[int, int]) -> None:
    pid, hold = waiting
    children = Path(f"/proc/{pid}/task/{pid}/children")
    assert children.read_text()
    os.write(hold, b"x")
    for _ in range(1000):
        if not children.read_text():
            break
        time.sleep(0.01)
    assert children.read_text() == ""


def test_it_costs_next_to_no_memory(waiting: tuple[int, int]) -> None:
    lines = Path(f"/proc/{waiting[0]}/smaps_rollup").read_text().splitlines()
    assert sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) <= 16


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_its_last_jump_goes_back_to_the_waiting(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back to where the number of pause(2), or of ppoll(2), is loaded."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    program = pausing.program()
    assert program is not None
    code = program[120:-32]
    if machine == "x86_64":
        target = len(code) + struct.unpack("b", code[-1:])[0]
        assert code[target : target + 5] == bytes.fromhex("b822000000")
    else:
        (jump,) = struct.unpack("<I", code[-4:])
        target = len(code) - 4 + 4 * ((jump & 0x03FF_FFFF) - (1 << 26))
        assert code[target : target + 4] == struct.pack("<I", 0xD2800928)


def test_unknown_machines_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert pausing.program() is None
