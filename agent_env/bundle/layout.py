"""The outline of a bundle's folder: which envs, artifacts, tasks and evals it has, by name. Opens only README.md."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_env.bundle.files import Unreadable, fold, names_in, read_small, unusable
from agent_env.bundle.problems import Problems, printable

__all__ = ["ALIASES", "KINDS", "Entry", "Layout", "misspelled", "read_layout"]

ALIASES = "aliases.toml"
KINDS: Mapping[str, tuple[str, ...]] = {
    "envs": (),
    "agents": (),
    "artifacts": (),
    "skills": (),
    "tasks": (".json", ".jsonl"),
    "evals": (".toml",),
}
"""Each kind's folder, and the endings of its files; no ending: its entries are folders."""


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    """The folder's name, or the file's without its ending; NFC."""
    file: str
    """Path inside the bundle, for messages."""
    path: Path

    def inside(self, path: Path) -> str:
        """A path in the entry's folder as one in the bundle, for messages."""
        return self.file if path == self.path else f"{self.file}/{path.relative_to(self.path).as_posix()}"


@dataclass(frozen=True, slots=True)
class Layout:
    entries: Mapping[str, tuple[Entry, ...]]
    """By kind, every kind; in the order of their file names."""
    aliases: Path | None
    description: str


def read_layout(root: Path, problems: Problems) -> Layout | None:
    """A bundle's outline; None when the folder is no bundle at all. What is wrong goes to `problems`."""
    names = _names(root, "", problems)
    if names is None:
        return None
    known = [*KINDS, ALIASES]
    wrong = {name for right in known for name in misspelled(names, right, "", problems)}
    for name in names:
        if fold(name) == "bundle.toml":
            problems.add(name, "", "bundles have no manifest", "delete it: the folder's name is the bundle's")
    if not wrong and not any(kind in names for kind in KINDS):
        kinds = ", ".join(f"{kind}/" for kind in KINDS)
        problems.add("", "", "the folder is no bundle", f"it needs at least one of {kinds}")
        return None
    entries = {kind: _entries(root, kind, names, problems) for kind in KINDS}
    shared = [*entries["artifacts"], *entries["skills"]]
    _clashes(shared, "artifacts and skills share one namespace; rename one of them", problems)
    for entry in shared:
        if "__" in entry.name:
            better = entry.name.replace("__", "-")
            problems.add(entry.file, "", 'a name with "__" is reserved', f"rename the folder, for example {better!r}")
    aliases = root / ALIASES if ALIASES in names else None
    if aliases is not None and not aliases.is_file():
        problems.add(ALIASES, "", "it is not a file", "write the aliases into a file of this name")
        aliases = None
    return Layout(entries=entries, aliases=aliases, description=_description(root, names))


def misspelled(names: Iterable[str], right: str, folder: str, problems: Problems) -> list[str]:
    """The names that are `right` but for case or Unicode form; each is a problem."""
    found = [name for name in names if name != right and fold(name) == fold(right)]
    for name in found:
        problems.add(f"{folder}{name}", "", f"the name must be spelled {right!r}", f"rename it to {right!r}")
    return found


def _names(path: Path, file: str, problems: Problems) -> list[str] | None:
    if not path.is_dir():
        missing = not os.path.lexists(path)
        what = f"there is no folder {str(path)!r}" if missing else "it is a file"
        problems.add(file, "", what, "check the path" if missing else "a folder must be here")
        return None
    try:
        return [name for name in names_in(path) if not name.startswith(".")]
    except Unreadable as error:
        problems.add(file, "", str(error), error.fix)
        return None


def _entries(root: Path, kind: str, names: list[str], problems: Problems) -> tuple[Entry, ...]:
    if kind not in names:
        return ()
    endings = KINDS[kind]
    found = []
    for name in _names(root / kind, kind, problems) or ():
        file, path = f"{kind}/{name}", root / kind / name
        if not printable(name):
            problems.add(file, "", "its name has characters that can't be shown", "rename it")
        elif endings and path.is_dir():
            problems.add(file, "", f"it is a folder, and {kind} are files", f"write {kind}/NAME{endings[0]}")
        elif endings:
            ending = next((ending for ending in endings if name.endswith(ending)), None)
            close = next((ending for ending in endings if fold(name).endswith(ending)), None)
            if ending is not None:
                found.append(Entry(unicodedata.normalize("NFC", name.removesuffix(ending)), file, path))
            elif close is not None:
                right = name[: -len(close)] + close
                problems.add(file, "", f"the ending must be spelled {close!r}", f"rename it to {right!r}")
        elif path.is_dir():
            found.append(Entry(unicodedata.normalize("NFC", name), file, path))
        elif not path.is_file():
            found_instead = unusable(path)
            problems.add(file, "", str(found_instead), found_instead.fix)
    _clashes(found, "rename one of them", problems)
    return tuple({(entry.name, entry.path.suffix): entry for entry in found}.values())


def _clashes(entries: Iterable[Entry], fix: str, problems: Problems) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(fold(entry.name), entry)
        if other is not entry:
            what = (
                f"its name and that of {other.file} are the same"
                if other.name == entry.name
                else (f"its name and that of {other.file} differ only by case or Unicode form")
            )
            problems.add(entry.file, "", what, fix)


_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_NO_TEXT = re.compile(r"^(#|<|!\[|\[!\[|===|---|```)")


def _description(root: Path, names: list[str]) -> str:
    """The first line of text in README.md, "" without any: front matter, headings, badges and HTML are skipped."""
    readme = next((name for name in ("README.md", *names) if name in names and fold(name) == "readme.md"), None)
    if readme is None:
        return ""
    try:
        text = read_small(root / readme).decode("utf-8", "replace")
    except Unreadable:
        return ""
    body = _FRONT_MATTER.sub("", text.removeprefix("\ufeff").replace("\r\n", "\n"))
    lines = (line.strip() for line in body.split("\n"))
    return next((line for line in lines if line and not _NO_TEXT.match(line)), "")
