"""A system-call filter written as plain BPF: no libseccomp. See seccomp(2), and linux/filter.h for the operations.

It is a deny list: calls that reach far into the kernel and that no env needs answer EPERM. In the tier without
namespaces it also takes away what namespaces would have: other processes, sockets, signals to anybody else.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct

from . import linux
from .syscalls import NUMBERS

__all__ = ["ALONE", "BASE", "VERIFIER_ALONE", "Rules", "apply", "built", "program"]

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""AUDIT_ARCH, and the column of NUMBERS."""

BASE = (
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsmount", "mount_setattr",
    "unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd",
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "keyctl", "add_key", "request_key", "kexec_load", "init_module", "finit_module", "delete_module",
    "open_by_handle_at", "name_to_handle_at", "swapon", "reboot", "acct", "memfd_secret",
)  # fmt: skip
_ALONE_TOO = (
    "fork", "vfork", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_send_signal",
    "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "setpriority", "ioprio_set",
    "migrate_pages", "move_pages", "memfd_create",
    # What no IPC namespace keeps apart.
    "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
    # What Landlock lets the owner of a file do to it, though it can't open it.
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
    "utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
    "removexattr", "lremovexattr", "fremovexattr", "removexattrat", "file_setattr",
)  # fmt: skip
ALONE = (*BASE, *_ALONE_TOO, "socket", "connect", "bind", "listen")
VERIFIER_ALONE = (*BASE, *_ALONE_TOO, "bind", "listen")

Rules = tuple[str, ...]

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_EPERM, _ENOSYS = _ERRNO | 1, _ERRNO | 38
_NUMBER, _ARCH = 0, 4
_CLONE3, _CLONE_NAMESPACES, _CLONE_THREAD = 435, 0x7E02_0000, 0x0001_0000
_X32 = 0x4000_0000
_SET_FLAGS, _SET_XATTR = 0x4008_6602, 0x401C_5820
"""FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR."""
_AF_INET, _TCP, _SOCK_TYPE_MASK, _MSG_FASTOPEN, _PDEATHSIG = 2, 6, 0xF, 0x2000_0000, 1


def _argument(index: int) -> int:
    return 16 + 8 * index  # the low half, little endian


def program(denied: Rules, *, alone: bool = False, verifier: bool = False, pid: int = 0) -> bytes:
    """The filter. `alone`: no process but this one, whose pid is given; `verifier`: no sockets but TCP ones."""
    arch, column = _ARCHITECTURES[platform.machine()]
    code = [(_LOAD, 0, 0, _ARCH), (_JUMP_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL_PROCESS), (_LOAD, 0, 0, _NUMBER)]
    if column == 0:
        code += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL_PROCESS)]
    # clone3 takes its flags by pointer, which a filter can't read: libc then falls back to clone.
    code += [(_JUMP_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]
    for name in denied:
        if (number := NUMBERS[name][column]) >= 0:
            code += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]

    def when(name: str, argument: int, *body: tuple[int, int, int, int]) -> None:
        """Judge one call by one argument; body ends in a return on every path."""
        head = (_JUMP_EQUAL, 0, len(body) + 1, NUMBERS[name][column])
        code.extend([head, (_LOAD, 0, 0, _argument(argument)), *body])

    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)
    if not alone:
        when("clone", 0, (_JUMP_SET, 0, 1, _CLONE_NAMESPACES), refuse, allow)
    else:
        when("clone", 0, (_JUMP_SET, 0, 1, _CLONE_THREAD), allow, refuse)
        when("ioctl", 1, (_JUMP_EQUAL, 1, 0, _SET_FLAGS), (_JUMP_EQUAL, 0, 1, _SET_XATTR), refuse, allow)
        when("prctl", 0, (_JUMP_EQUAL, 0, 1, _PDEATHSIG), refuse, allow)
        for name in ("kill", "tgkill"):
            when(name, 0, (_JUMP_EQUAL, 0, 1, pid), allow, refuse)
        when("prlimit64", 0, (_JUMP_EQUAL, 1, 0, 0), (_JUMP_EQUAL, 0, 1, pid), allow, refuse)
        # Streams and packets only: a datagram socket of a pair could still send to any named one.
        and_type = (_AND, 0, 0, _SOCK_TYPE_MASK)
        when("socketpair", 1, and_type, (_JUMP_EQUAL, 1, 0, 1), (_JUMP_EQUAL, 0, 1, 5), allow, refuse)
    if verifier:
        # Plain TCP over IPv4, whose connect() Landlock judges; not MPTCP or SCTP, and no connect by a first send.
        when(
            "socket", 0, (_JUMP_EQUAL, 0, 7, _AF_INET), (_LOAD, 0, 0, _argument(1)), and_type,
            (_JUMP_EQUAL, 0, 4, 1), (_LOAD, 0, 0, _argument(2)), (_JUMP_EQUAL, 1, 0, 0), (_JUMP_EQUAL, 0, 1, _TCP),
            allow, refuse,
        )  # fmt: skip
        for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            when(name, flags, (_JUMP_SET, 0, 1, _MSG_FASTOPEN), refuse, allow)
    code.append(allow)
    return b"".join(struct.pack("HBBI", *line) for line in code)


@functools.cache
def built(denied: Rules) -> bytes:
    """A fork server builds what its children use before it forks them."""
    return program(denied)


def apply(denied: Rules = BASE, *, alone: bool = False, verifier: bool = False) -> None:
    """For this process and all that it starts, for good. Needs no-new-privileges."""
    filters = program(denied, alone=True, verifier=verifier, pid=os.getpid()) if alone else built(denied)
    body = ctypes.create_string_buffer(filters, len(filters))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(filters) // 8, ctypes.addressof(body)), 16)
    linux.prctl(22, 2, ctypes.addressof(head))  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
