"""A program that collects the children that it is left with and waits, as the bytes of an ELF file.

What waits in each env for its end must cost next to nothing. `sleep` is linked dynamically: 0.14 MiB and a millisecond
of CPU time each. This ignores SIGCHLD, so that the kernel collects what ends below it, names itself by its argv[0],
and waits: by pause(2) on x86-64, by ppoll(2) with no descriptor and no timeout on aarch64, which has no pause. elf(5)
has the fields.
"""

from __future__ import annotations

import platform
import struct

__all__ = ["program"]

_BASE = 0x40_0000
_HEADERS = 64 + 56
_IGNORE = struct.pack("<4Q", 1, 0, 0, 0)
"""The kernel's struct sigaction: SIG_IGN, and neither flags nor a mask."""
_CODE = {
    "x86_64": (
        62,
        bytes.fromhex(
            "b80d000000 bf11000000 488d3524000000 31d2 41ba08000000 0f05"  # rt_sigaction(SIGCHLD, _IGNORE, NULL, 8)
            "b89d000000 bf0f000000 488b742408 0f05"  # prctl(PR_SET_NAME, argv[0])
            "b822000000 0f05 ebf7"  # pause(), again and again
        )
        + _IGNORE,
    ),
    "aarch64": (
        183,
        struct.pack(
            "<18I",
            # The same calls; numbers go to x8, arguments to x0 and on.
            *(0xD28010C8, 0xD2800220, 0x10000201, 0xD2800002, 0xD2800103, 0xD4000001),
            *(0xD28014E8, 0xD28001E0, 0xF94007E1, 0xD4000001),
            *(0xD2800928, 0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003, 0xD2800004, 0xD4000001, 0x17FFFFF9),
        )
        + _IGNORE,
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
