"""Make a small root filesystem of the Python that runs this: the interpreter and its standard library.

    python3 scripts/python_rootfs.py ROOT [SITE_PACKAGES ...] [--programs NAME ...]

The interpreter goes to ROOT/usr/local, the shared libraries that it loads go where the loader finds them, and what
the given folders hold goes to its site-packages. There is no shell: a Dockerfile on top of it uses
`RUN ["python3", ...]`, unless `sh` is among the programs of this machine that are copied to ROOT/bin.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "turtledemo",
    "tkinter",
    "ensurepip",
    "lib2to3",
}
FOR_WHEELS = {
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libpthread.so.0",
    "libresolv.so.2",
}
"""What a compiled wheel may count on (manylinux, PEP 513), whether or not the interpreter needs it."""


def make(root: Path, site_packages: Iterable[str], programs: Iterable[str]) -> None:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    local = root / "usr/local"
    shutil.copytree(
        sysconfig.get_path("stdlib"),
        local / "lib" / version,
        dirs_exist_ok=True,
        ignore=lambda _, names: [name for name in names if name in LEFT_OUT or name.startswith("config-")],
    )
    site = local / "lib" / version / "site-packages"
    site.mkdir(exist_ok=True)
    for folder in site_packages:
        shutil.copytree(folder, site, dirs_exist_ok=True)
    python = Path(os.path.realpath(sys.executable))
    copy(python, local / "bin" / version)
    for name in ("python", "python3"):
        (local / "bin" / name).symlink_to(version)
    for program in programs:
        copy(Path(shutil.which(program) or program), root / "bin" / program)
    binaries = [python, *root.rglob("*.so"), *root.glob("bin/*")]
    for library in shared_libraries(binaries) | wheels_libraries():
        ours = library.is_relative_to(sys.base_prefix) and sys.base_prefix != "/usr"
        copy(library, local / "lib" / library.name if ours else root / str(library).lstrip("/"))
    for folder in ("tmp", "run", "proc", "sys", "dev", "etc", "home/env"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)  # a temporary folder's 0700 would become the container's /
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/false\nenv:x:1000:1000::/home/env:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\nenv:x:1000:\n")
    triple = f"{platform.machine()}-linux-gnu"
    (root / "etc/ld.so.conf").write_text(f"/usr/local/lib\n/lib/{triple}\n/usr/lib/{triple}\n")
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True)


def shared_libraries(binaries: Iterable[Path]) -> set[Path]:
    """What the dynamic loader resolves for these files."""
    told = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"=> (/\S+)", told) + re.findall(r"^\s+(/\S+) \(", told, re.MULTILINE)
    return {Path(path) for path in found}


def wheels_libraries() -> set[Path]:
    """Those of `FOR_WHEELS` that this machine has."""
    told = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    ours = re.findall(r"^\s*(\S+) \(libc6,[^)]*\) => (\S+)$", told, re.MULTILINE)
    return {Path(path) for name, path in ours if name in FOR_WHEELS}


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)  # follows links: the image stands alone


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("site_packages", nargs="*")
    parser.add_argument("--programs", nargs="*", default=[])
    given = parser.parse_args()
    make(given.root, given.site_packages, given.programs)
