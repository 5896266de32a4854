"""The system-call filter, run by a small interpreter of BPF: what it answers on each architecture."""

from __future__ import annotations

import struct

import pytest

from agent_env.sandbox.process.inside import seccomp
from agent_env.sandbox.process.inside.syscalls import NUMBERS

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
PID = 4711


def answer(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """What the kernel does with a call: linux/filter.h's operations, as far as the filter uses them."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    lines = list(struct.iter_unpack("<HBBI", program))
    assert len(lines) <= 4096
    at = accumulator = 0
    while True:
        code, if_true, if_false, constant = lines[at]
        at += 1
        if code == 0x06:
            return constant
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, constant)[0]
        elif code == 0x54:
            accumulator &= constant
        else:
            holds = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: bool(accumulator & constant)}
            at += if_true if holds[code] else if_false


class Filter:
    def __init__(self, machine: str, program: bytes) -> None:
        self.arch, self.column = ARCHITECTURES[machine]
        self.program = program

    def __call__(self, name: str, *arguments: int) -> int:
        return answer(self.program, self.arch, NUMBERS[name][self.column], *arguments)


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("platform.machine", lambda: request.param)
    return str(request.param)


def test_denied_calls_are_refused_and_others_pass(machine: str) -> None:
    base = Filter(machine, seccomp.program(seccomp.BASE))
    for name in seccomp.BASE:
        assert base(name) == EPERM, name
    for name in set(NUMBERS) - set(seccomp.BASE):
        if NUMBERS[name][base.column] >= 0:
            assert base(name) == ALLOW, name
    assert answer(base.program, base.arch, 0) == ALLOW


def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    base = Filter(machine, seccomp.program(seccomp.BASE))
    assert answer(base.program, 0x40000003, 1) == KILL  # 32-bit x86
    if machine == "x86_64":
        assert answer(base.program, base.arch, 0x40000000 | 165) == KILL  # x32


def test_new_namespaces_are_refused_and_threads_are_not(machine: str) -> None:
    base = Filter(machine, seccomp.program(seccomp.BASE))
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert base("clone", flag | 17) == EPERM
    assert base("clone", 17) == ALLOW
    assert base("clone", 0x3D0F00) == ALLOW
    assert answer(base.program, base.arch, 435) == ENOSYS


def test_env_alone_starts_no_process_and_signals_no_other(machine: str) -> None:
    alone = Filter(machine, seccomp.program(seccomp.ALONE, alone=True, pid=PID))
    assert alone("clone", 17) == EPERM
    assert alone("clone", 0x3D0F00) == ALLOW  # a thread
    for name in ("kill", "tgkill"):
        assert alone(name, PID) == ALLOW
        assert alone(name, PID + 1) == EPERM
        assert alone(name, 0xFFFFFFFF) == EPERM
    assert alone("prlimit64", 0) == alone("prlimit64", PID) == ALLOW
    assert alone("prlimit64", 1) == EPERM
    assert alone("prctl", 1) == EPERM
    assert alone("prctl", 15) == ALLOW
    assert alone("ioctl", 1, 0x40086602) == alone("ioctl", 1, 0x401C5820) == EPERM
    assert alone("ioctl", 1, 0x5401) == ALLOW


def test_env_alone_makes_no_socket_but_connected_pairs(machine: str) -> None:
    alone = Filter(machine, seccomp.program(seccomp.ALONE, alone=True, pid=PID))
    assert alone("socket", 2, 1) == alone("socket", 1, 1) == alone("connect") == alone("bind") == EPERM
    for kind, expected in ((1, ALLOW), (5, ALLOW), (2, EPERM), (3, EPERM), (0x80801, ALLOW), (0x80802, EPERM)):
        assert alone("socketpair", 1, kind) == expected


def test_verifier_alone_has_plain_tcp_only(machine: str) -> None:
    verifier = Filter(machine, seccomp.program(seccomp.VERIFIER_ALONE, alone=True, verifier=True, pid=PID))
    assert verifier("socket", 2, 1, 0) == verifier("socket", 2, 0x80801, 6) == ALLOW
    for arguments in ((1, 1, 0), (10, 1, 0), (2, 2, 0), (2, 3, 1), (2, 1, 262), (2, 1, 132), (16, 3, 0)):
        assert verifier("socket", *arguments) == EPERM
    assert verifier("connect") == ALLOW
    assert verifier("bind") == verifier("listen") == EPERM
    for name, place in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        assert verifier(name, *[0] * place, 0x4000) == ALLOW
        assert verifier(name, *[0] * place, 0x20004000) == EPERM
