"""A program that does nothing but wait, as the bytes of an ELF file.

What waits in each env for its end must cost next to nothing. `sleep` is linked dynamically: 0.14 MiB and a millisecond
of CPU time each. This calls pause(2) on x86-64, and ppoll(2) without descriptors or a timeout on aarch64, which has no
pause. elf(5) has the fields.
"""

from __future__ import annotations

import platform
import struct

__all__ = ["program"]

_BASE = 0x40_0000
_HEADERS = 64 + 56
_CODE = {
    # mov eax, 34; syscall; jmp back
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    # mov x8, 73; mov x0..x3, 0; svc 0; b back
    "aarch64": (
        183,
        struct.pack("<7I", 0xD2800928, 0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003, 0xD4000001, 0x17FFFFFA),
    ),
}


def program() -> bytes | None:
    """For this machine; None where the code isn't known."""
    if platform.machine() not in _CODE:
        return None
    machine, code = _CODE[platform.machine()]
    size = _HEADERS + len(code)
    ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 2, machine, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)  # PT_LOAD, read and execute
    return header + segment + code
