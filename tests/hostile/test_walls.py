"""An env that looks and reaches around: it finds walls."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.hostile.conftest import Arena
from tests.sandbox.doubles import run

pytestmark = pytest.mark.integration


async def test_its_own_code_is_read_only(arena: Arena) -> None:
    server = arena.spec.folder / "server.py"
    before = server.read_bytes()
    seen = await run(
        arena.env,
        f"""
        import os, sys
        value = []
        for path in {{sys.modules["__main__"].__file__, {str(server)!r}}}:
            for attempt in (lambda: open(path, "a"), lambda: os.remove(path), lambda: os.chmod(path, 0o777),
                            lambda: open(os.path.join(os.path.dirname(path), "new.py"), "w")):
                try:
                    attempt()
                    value.append(path)
                except OSError:
                    pass
        """,
    )
    assert seen == []
    assert server.read_bytes() == before
    assert sorted(path.name for path in arena.spec.folder.iterdir()) == ["server.py"]


async def test_files_of_the_host_are_out_of_reach(arena: Arena, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    paths = [
        str(secret),
        "/root/.bashrc",
        "/root/.ssh",
        "/home",
        "/etc/shadow",
        "/etc/hostname",
        "/var/log",
        "/sys/kernel",
    ]
    seen = await run(
        arena.env,
        f"""
        import os
        value = []
        for path in {paths!r}:
            for attempt in (lambda: open(path).read(), lambda: os.listdir(path)):
                try:
                    attempt()
                    value.append(path)
                except OSError:
                    pass
        """,
    )
    assert seen == []


async def test_environment_of_others_is_out_of_reach(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_ENV_TOKEN", "t0p-s3cret")
    seen = await run(
        arena.env,
        f"""
        import os
        value = {{"own": "AGENT_ENV_TOKEN" in os.environ, "read": []}}
        for pid in [{os.getpid()}, {os.getppid()}, *range(1, 400)]:
            for name in ("environ", "mem", "maps", "root/etc/shadow"):
                try:
                    with open(f"/proc/{{pid}}/{{name}}", "rb") as file:
                        if name != "mem" and (b"t0p-" + b"s3cret") in file.read():
                            value["read"].append(pid)
                        if name in ("mem", "root/etc/shadow") and pid not in (1, 2, os.getpid()):
                            value["read"].append(pid)
                except OSError:
                    pass
        """,
    )
    assert seen == {"own": False, "read": []}


async def test_files_of_its_neighbour_are_out_of_reach(arena: Arena) -> None:
    folder = await run(
        arena.neighbour,
        "import tempfile; value = tempfile.gettempdir(); open(value + '/note', 'w').write('x')",
    )
    seen = await run(
        arena.env,
        f"""
        import os
        value = []
        for attempt in (lambda: open({folder + "/note"!r}).read(), lambda: "note" in os.listdir({folder!r}) or 1 / 0,
                        lambda: os.listdir(os.path.dirname(os.environ.get("TMPDIR", "/none/x")))):
            try:
                attempt()
                value.append(1)
            except (OSError, ZeroDivisionError):
                pass
        """,
    )
    assert seen == []


async def test_no_network_but_its_own_loopback(arena: Arena, tmp_path: Path) -> None:
    abstract = f"\0agent-env-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as by_path,
        socket.socket(socket.AF_UNIX) as by_name,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        by_path.bind(str(tmp_path / "s"))
        by_name.bind(abstract)
        datagrams.bind(abstract + "d")
        for listener in (by_path, by_name):
            listener.listen()
        seen = await run(
            arena.env,
            f"""
            import socket
            value = []
            def reach(name, *kind, to):
                try:
                    with socket.socket(*kind) as sock:
                        sock.settimeout(1)
                        sock.connect(to)
                        sock.send(b"hello")
                        value.append(name)
                except OSError:
                    pass
            reach("host", to=("127.0.0.1", {tcp.getsockname()[1]}))
            reach("metadata", to=("169.254.169.254", 80))
            reach("dns", socket.AF_INET, socket.SOCK_DGRAM, to=("192.0.2.1", 53))
            reach("path", socket.AF_UNIX, to={str(tmp_path / "s")!r})
            reach("abstract", socket.AF_UNIX, to={abstract!r})
            reach("datagram", socket.AF_UNIX, socket.SOCK_DGRAM, to={abstract + "d"!r})
            try:
                one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                one.sendto(b"hello", {abstract + "d"!r})
                value.append("pair")
            except OSError:
                pass
            """,
        )
    assert seen == []


async def test_signals_reach_nobody_else(arena: Arena) -> None:
    # Number 1 (our parent, if the shell that started us has ended) is another process in there: its own first.
    ours = [pid for pid in (os.getpid(), os.getppid()) if pid != 1]
    seen = await run(
        arena.env,
        f"""
        import os, resource, signal
        value = []
        for pid in {ours!r}:
            for attempt in (lambda: os.kill(pid, 0), lambda: os.kill(pid, signal.SIGTERM), lambda: os.killpg(pid, 15),
                            lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0),
                            lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)),
                            lambda: os.sched_setaffinity(pid, {{0}}), lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)):
                try:
                    attempt()
                    value.append(pid)
                except OSError:
                    pass
        try:
            os.kill(-1, signal.SIGWINCH)
        except OSError:
            pass
        """,
    )
    assert seen == []


async def test_calls_that_reach_into_the_kernel_are_refused(arena: Arena) -> None:
    seen = await run(
        arena.env,
        """
        import ctypes, errno, os
        libc = ctypes.CDLL(None, use_errno=True)
        numbers = {"x86_64": {"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272,
            "setns": 308, "ptrace": 101, "bpf": 321, "io_uring_setup": 425, "perf_event_open": 298, "keyctl": 250,
            "userfaultfd": 323, "open_by_handle_at": 304, "clone3": 435, "init_module": 175, "open_tree": 428}}
        value = {}
        for name, number in numbers.get(os.uname().machine, {}).items():
            argument = 0x10000000 if name == "unshare" else 0
            if libc.syscall(number, argument, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
                value[name] = errno.errorcode.get(ctypes.get_errno(), "none")
        for flag in (0x10000000, 0x20000000, 0x40000000, 0x20000, 0x4000000, 0x8000000):
            pid = libc.syscall(56, flag | 17, 0, 0, 0, 0) if os.uname().machine == "x86_64" else -1
            if pid == 0:
                os._exit(0)
            if pid > 0:
                value[hex(flag)] = pid
        """,
    )
    assert seen == {}


async def test_it_has_no_rights_to_give_up(arena: Arena) -> None:
    seen = await run(
        arena.env,
        """
        import os
        def status():
            lines = open("/proc/self/status").read().splitlines()
            return {line.split(":")[0]: line.split()[1] for line in lines if ":" in line and len(line.split()) > 1}
        value = {"uid": os.getuid(), "groups": os.getgroups()}
        try:
            found = status()
            value |= {name: found[name] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")}
        except OSError:
            value["status"] = "unreadable"
        for call in (os.setuid, os.setgid):
            try:
                call(0)
                value[call.__name__] = value["uid"]
            except OSError:
                pass
        """,
    )
    if arena.tier == "namespaces":
        none = "0" * 16
        assert seen == {
            "uid": 1000, "groups": [], "CapEff": none, "CapPrm": none, "CapBnd": none, "CapAmb": none,
            "NoNewPrivs": "1", "Seccomp": "2",
        }  # fmt: skip
    else:
        assert seen.get("setuid", seen["uid"]) == seen["uid"]  # refused, or who it is already
        assert seen["status"] == "unreadable"


async def test_it_sees_no_process_but_its_own(arena: Arena) -> None:
    seen = await run(
        arena.env,
        """
        import os
        try:
            value = sorted(p for p in os.listdir("/proc") if p.isdigit())
        except OSError:
            value = []
        """,
    )
    assert seen == (["1", "2"] if arena.tier == "namespaces" else [])


async def test_it_stays_tied_to_its_server(arena: Arena) -> None:
    if arena.tier == "namespaces":
        return  # its PID namespace ties it, which no call undoes
    refused = await run(arena.env, "import ctypes; value = ctypes.CDLL(None, use_errno=True).prctl(1, 0, 0, 0, 0)")
    assert refused == -1
