"""Reading and hashing the files of a bundle, without surprises: no FIFO blocks, no link loops, no endless file."""

from __future__ import annotations

import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from agent_env.bundle.strict import MAX_FILE_BYTES

__all__ = ["Unreadable", "digest", "fold", "is_leaving", "names_in", "open_regular", "read_small", "unusable", "walk"]

_LEAVINGS = frozenset(
    {
        "__pycache__",
        ".DS_Store",
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        "Thumbs.db",
        "desktop.ini",
    }
)


class Unreadable(Exception):
    """A file or folder can't be used; `path` is which, str() says why, `fix` what to do."""

    def __init__(self, path: Path, why: str, fix: str = "make it readable") -> None:
        self.path = path
        self.fix = fix
        super().__init__(why)


def is_leaving(name: str) -> bool:
    """Whether an entry is what Python, an OS or a tool leaves behind: no part of any bundle."""
    return name in _LEAVINGS or name.endswith((".pyc", ".pyo"))


def fold(name: str) -> str:
    """Equal for names that differ only by case or Unicode form: some file systems can't hold both."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def unusable(path: Path) -> Unreadable:
    """What is wrong with an entry that isn't what it should be."""
    if path.is_dir():
        return Unreadable(path, "it is a folder", "put a file here")
    if path.is_symlink() and not path.exists():
        return Unreadable(path, "it is a link to nothing", "mend or remove the link")
    return Unreadable(path, "it is neither a file nor a folder", "remove it")


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading, links followed. Raises Unreadable for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(path, f"it can't be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise unusable(path)
    return os.fdopen(descriptor, "rb")


def read_small(path: Path) -> bytes:
    """The bytes of a config or task file. Raises Unreadable, also when it is larger than MAX_FILE_BYTES."""
    with open_regular(path) as file:
        try:
            data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise Unreadable(path, f"it can't be read ({error.strerror})") from None
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable(path, f"it is larger than {MAX_FILE_BYTES >> 20} MiB", "make it smaller")
    return data


def names_in(folder: Path) -> list[str]:
    """The names of a folder's entries, sorted, leavings skipped. Raises Unreadable."""
    try:
        return sorted(name for name in os.listdir(folder) if not is_leaving(name))
    except OSError as error:
        raise Unreadable(folder, f"it can't be read ({error.strerror})") from None


def walk(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file below a folder as (path inside it with `/`, path), sorted, links followed, leavings skipped.

    Raises Unreadable for what is neither file nor folder, and for a link to a folder around it.
    """
    yield from _walk(folder, "", (os.path.realpath(folder),))


def _walk(folder: Path, prefix: str, above: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise Unreadable(folder, f"it can't be read ({error.strerror})") from None
    for entry in entries:
        path = folder / entry.name
        if is_leaving(entry.name):
            continue
        if entry.is_dir():
            real = os.path.realpath(path)
            if real in above:
                raise Unreadable(path, "it is a link to a folder around it", "remove the link")
            yield from _walk(path, f"{prefix}{entry.name}/", (*above, real))
        elif entry.is_file():
            yield f"{prefix}{entry.name}", path
        else:
            raise unusable(path)


def digest(folder: Path) -> str:
    """sha256 (hex) over a folder's files: paths inside it, executable bits and contents. Raises Unreadable."""
    total = hashlib.sha256()
    for name, path in walk(folder):
        with open_regular(path) as file:
            executable = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
            content = hashlib.file_digest(file, "sha256").hexdigest()
        line = f"{'x' if executable else '-'} {content} {unicodedata.normalize('NFC', name)}\n"
        total.update(line.encode("utf-8", "surrogateescape"))
    return total.hexdigest()
