"""The walls of each tier: for a fork server at its start, and for each child before any code of an env or verifier."""

from __future__ import annotations

import os
import socket

from . import landlock, linux, passing, root, seccomp
from .settings import Settings, Spawn

__all__ = ["confine_child", "confine_server"]

_CHILD_UID = 1000
"""Whom an env finds itself to be."""


def confine_server(settings: Settings) -> None:
    """Returns in the process that is to be the fork server: another one than called, where there are namespaces.

    The server of a root host is an ordinary user before it imports any library: the root that it sees is made
    first, with root's rights, since interpreters and bundles may lie in a home that nobody else can enter.
    """
    linux.die_with_parent()
    if settings.tier == "namespaces":
        _into_namespaces(settings)
    elif settings.tier == "landlock" and os.geteuid() == 0 and _reachable(settings):
        _become(settings.uid)


def _into_namespaces(settings: Settings) -> None:
    was_root = os.geteuid() == 0
    if was_root:
        linux.unshare(linux.NEWNS)
        root.enter_root(settings)
        _become(settings.uid)
    uid, gid = os.geteuid(), os.getegid()
    kinds = linux.NEWPID | linux.NEWNS | linux.NEWNET | linux.NEWIPC | linux.NEWUTS
    linux.unshare(linux.NEWUSER | kinds)
    linux.map_user(0, uid, gid)
    if pid := os.fork():
        os.closerange(3, 1 << 16)  # the control socket too: its end must mean the server's end
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
    linux.die_with_parent()
    if not was_root:
        root.enter_root(settings)
    linux.mount("proc", "/proc", "proc", linux.NOSUID | linux.NODEV | linux.NOEXEC)
    passing.loopback_up()


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    linux.set_dumpable()
    linux.die_with_parent()


def _reachable(settings: Settings) -> bool:
    """Could another user read what the children need? Every folder on the way must let others through."""
    for path, _ in settings.binds:
        while path != "/":
            if not os.stat(path).st_mode & 0o001 and os.path.isdir(path):
                return False
            path = os.path.dirname(path)
    return True


def confine_child(settings: Settings, spawn: Spawn, channel: socket.socket) -> None:
    """In a forked child. Where it has a network namespace, sockets of it are passed out by the channel.

    `env` with tcp: a handle of the namespace, and sockets to connect; `verifier`: a listener.
    """
    linux.die_with_parent()
    linux.name_process(spawn.name)
    if settings.tier == "namespaces":
        linux.unshare(linux.NEWNS | linux.NEWIPC | linux.NEWUTS | linux.NEWNET)
        passing.loopback_up()
        linux.mount("proc", "/proc", "proc", linux.NOSUID | linux.NODEV | linux.NOEXEC)
        root.private_tmp(settings, spawn.tmp_size)
        socket.sethostname("env")
        if spawn.role == "verifier":
            _pass_out(channel, [passing.listening(settings.port).detach()])
        elif spawn.tcp:
            namespace = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            _pass_out(channel, [namespace, *(sock.detach() for sock in passing.unconnected(4))])
        # A user namespace of its own, last: the mounts above need the fork server's, and the number of processes
        # is then counted for this child alone.
        linux.unshare(linux.NEWUSER)
        linux.map_user(_CHILD_UID, 0, 0)
    elif settings.tier == "unconfined":
        os.setsid()
    processes = spawn.processes if settings.tier == "namespaces" else None
    linux.limit(spawn.memory, processes, spawn.open_files, spawn.cpu_seconds, spawn.file_size)
    if settings.tier == "unconfined":
        return
    linux.no_new_privileges()
    linux.drop_capabilities()
    if settings.tier == "landlock":
        verifier = spawn.role == "verifier"
        port = spawn.relay_port if verifier else None
        devices = [f"/dev/{name}" for name in ("zero", "full", "random", "urandom")]
        landlock.restrict([*(source for source, _ in settings.binds), *devices], [spawn.tmp, "/dev/null"], port)
        denied = seccomp.VERIFIER_ALONE if verifier else seccomp.ALONE
        seccomp.apply(denied, alone=True, verifier=verifier)
    else:
        seccomp.apply()


def _pass_out(channel: socket.socket, fds: list[int]) -> None:
    """Before the limit on open files is set: it also limits how many descriptors may be under way from all processes of
    this user, and an env could hold so many of them that no other could pass any."""
    passing.send(channel, b"sockets", fds)
    for fd in fds:
        os.close(fd)
