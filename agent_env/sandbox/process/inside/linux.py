"""The few Linux calls that a process sandbox needs, through ctypes: no package, no helper program.

Each raises OSError with the call's name. Numbers are from the kernel's uapi headers; man pages: unshare(2), setns(2),
mount(2), mount_setattr(2) (Linux 5.12), pivot_root(2), prctl(2), capabilities(7), user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct

__all__ = [
    "BIND",
    "NEWIPC",
    "NEWNET",
    "NEWNS",
    "NEWPID",
    "NEWUSER",
    "NEWUTS",
    "NODEV",
    "NOEXEC",
    "NOSUID",
    "PRIVATE",
    "REC",
    "bare_fork",
    "close_from",
    "die_with_parent",
    "drop_capabilities",
    "ignore_children",
    "limit",
    "map_user",
    "mount",
    "name_process",
    "no_new_privileges",
    "pivot_root",
    "prctl",
    "read_only",
    "set_dumpable",
    "setns",
    "syscall",
    "unshare",
    "wait_for_ever",
]

NEWNS, NEWUTS, NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
NEWUSER, NEWPID, NEWNET = 0x1000_0000, 0x2000_0000, 0x4000_0000
NOSUID, NODEV, NOEXEC, BIND, REC, PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NAME, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 15, 24, 38
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _MNT_DETACH = 442, -100, 0x8000, 2
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x2008_0522
_CLOSE_RANGE, _SIGCHLD = 436, 17

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else os.fsencode(text)


def syscall(what: str, number: int, *arguments: object) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *arguments), what)


def bare_fork() -> int:
    """fork(2) without what Python does around it: for a process of one thread, whose child does next to nothing."""
    return _check(_libc.fork(), "fork")


def close_from(fd: int) -> None:
    syscall("close_range", _CLOSE_RANGE, ctypes.c_uint(fd), ctypes.c_uint(0xFFFF_FFFF), 0)


def ignore_children() -> None:
    """The kernel then collects them as they end."""
    _libc.signal(_SIGCHLD, ctypes.c_void_p(1))


def wait_for_ever() -> None:
    while True:
        _libc.pause()


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(fd, kind), "setns")


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    result = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(data))
    _check(result, f"mount {target}")


def read_only(path: str, *, recursive: bool = True) -> None:
    """Make the mount at path, and all mounts below it, read-only, without devices and set-user-id programs.

    Adds these to the flags that the mounts have, which matters in a user namespace: it may take none away.
    """
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV, 0, 0, 0)
    flags, size = _AT_RECURSIVE if recursive else 0, ctypes.c_size_t(len(attributes))
    syscall(f"mount_setattr {path}", _MOUNT_SETATTR, _AT_FDCWD, _bytes(path), flags, attributes, size)


def pivot_root(new: str) -> None:
    """Make the mount at `new` the root, and let go of the old one."""
    os.chdir(new)
    syscall("pivot_root", _PIVOT_ROOT[platform.machine()], b".", b".")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount the old root")
    os.chdir("/")


def prctl(option: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
    long = ctypes.c_ulong
    return _check(_libc.prctl(option, long(a), long(b), long(c), long(d)), f"prctl {option}")


def die_with_parent() -> None:
    """SIGKILL when the *thread* that forked this process ends. A change of user clears it: then call it again."""
    prctl(_PR_SET_PDEATHSIG, 9)


def set_dumpable() -> None:
    """After a change of user, or /proc/self stays the old user's and no uid_map can be written."""
    prctl(_PR_SET_DUMPABLE, 1)


def name_process(name: str) -> None:
    """What `ps` shows as its command; the kernel keeps 15 bytes."""
    text = ctypes.create_string_buffer(name.encode()[:15])  # held until the call is made
    prctl(_PR_SET_NAME, ctypes.addressof(text))


def no_new_privileges() -> None:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Every capability, from every set; a new user namespace begins with a full bounding set, so call it after."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break  # no capability of that number, or nothing that may be dropped
    _check(_libc.capset(struct.pack("II", _CAPABILITY_VERSION_3, 0), bytes(24)), "capset")


def map_user(inside: int, uid: int, gid: int) -> None:
    """Right after unshare(NEWUSER): uid and gid, as `inside`, are all that the new namespace holds."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{inside} {uid} 1"), ("gid_map", f"{inside} {gid} 1")):
        fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def limit(memory: int | None, processes: int | None, files: int, cpu_seconds: int, file_size: int) -> None:
    """Resource limits, in bytes, counts and seconds. None: as it is.

    Memory is RLIMIT_DATA (private writable pages, thread stacks included) and not only RLIMIT_AS, of which a
    server with 40 threads reserves gigabytes that it never touches. The number of processes counts per user *and*
    user namespace, so it must be set in a namespace of the env's own.
    """
    wanted = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_AS: None if memory is None else 4 * memory,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_NOFILE: files,
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_FSIZE: file_size,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        if value is not None:
            hard = resource.getrlimit(kind)[1]
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard)
            # SIGXCPU tells why a process ends; SIGKILL follows for one that ignores it.
            soft = max(1, value - 1) if kind == resource.RLIMIT_CPU else value
            resource.setrlimit(kind, (soft, value))
