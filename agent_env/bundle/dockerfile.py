"""A Dockerfile, read for how it starts its server, and for whether the server can run without its image.

It can when all that the image adds to a Python base is the env's own files, in their own layout, its requirements,
environment variables and a user. Then the process sandbox does the same with a virtual environment. Anything more is a
reason to need Docker, told with its line.
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent_env.bundle.problems import Problems

__all__ = ["Dockerfile", "read_dockerfile"]

_HARMLESS = frozenset({"ARG", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER"})
"""Instructions that change nothing about how the server runs without its image."""
_NEED_IMAGE = frozenset({"ONBUILD", "VOLUME"})
_PYTHON_IMAGE = re.compile(r"(?:^|/)python(?::(?P<version>3\.\d+)?[^@/]*)?(?:@[\w:]+)?$")
_VARIABLE = re.compile(r"\\\$|\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_USER_COMMANDS = frozenset({"adduser", "addgroup", "chmod", "chown", "groupadd", "useradd"})
"""Commands that only serve the image's own user."""


@dataclass(slots=True)
class Dockerfile:
    """What a Dockerfile says; without `needs_docker`, enough to start the server from the env's folder itself."""

    command: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    python: str | None = None
    """The Python version of its base image, as `3.12`, if its tag says it."""
    requirements: str | None = None
    """The requirements file that it installs: path inside the folder."""
    needs_docker: str | None = None
    """The first reason why the image can't be done without."""


def read_dockerfile(text: str, folder: Path, file: str, problems: Problems) -> Dockerfile:
    """Read a Dockerfile whose build context is `folder`; what no engine could build is a problem of `file`."""
    return _Reader(folder, file, problems).read(text)


class _Reader:
    def __init__(self, folder: Path, file: str, problems: Problems) -> None:
        self.folder = folder
        self.file = file
        self.problems = problems
        self.result = Dockerfile()
        self.variables: dict[str, str] = {}
        self.stages = 0
        self.workdir_set = False
        self.roots: dict[str, int] = {}
        """Where the folder's files go in the image -> the first line that says so."""
        self.entrypoint: tuple[str, ...] = ()
        self.cmd: tuple[str, ...] = ()

    def read(self, text: str) -> Dockerfile:
        line = 1
        for line, instruction, rest in _instructions(text):
            if instruction != "FROM" and instruction != "ARG" and not self.stages:
                self.problem(line, f"{instruction} comes before FROM", "begin with FROM, as FROM python:3.11-slim")
                return self.result
            self.instruction(line, instruction, rest)
        if not self.stages:
            self.problem(line, "it has no FROM", "begin with FROM, as FROM python:3.11-slim")
        self.finish(line)
        return self.result

    def instruction(self, line: int, name: str, rest: str) -> None:
        if name in _NEED_IMAGE:
            self.needs_docker(line, f"{name} {rest}")
        elif name == "ARG":
            key, _, value = rest.partition("=")
            self.variables.setdefault(key.strip(), self.expand(_unquote(value)))
        elif name == "FROM":
            self.base(line, rest)
        elif name == "ENV":
            self.env(line, rest)
        elif name == "WORKDIR":
            self.workdir_set = True
            self.result.workdir = posixpath.normpath(posixpath.join(self.result.workdir, self.expand(_unquote(rest))))
        elif name in ("COPY", "ADD"):
            self.copy(line, name, rest)
        elif name == "RUN":
            self.run(line, rest)
        elif name in ("CMD", "ENTRYPOINT"):
            self.start(line, name, rest)
        elif name not in _HARMLESS:
            self.problem(line, f"{name} is no Dockerfile instruction", "mend or remove the line")

    def problem(self, line: int, what: str, fix: str) -> None:
        self.problems.add(self.file, f"line {line}", what, fix)

    def needs_docker(self, line: int, why: str) -> None:
        if self.result.needs_docker is None:
            self.result.needs_docker = f"Dockerfile line {line}: {why if len(why) <= 200 else why[:199] + '…'}"

    def expand(self, text: str) -> str:
        """Replace `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}` by what ARG and ENV set."""

        def value(match: re.Match[str]) -> str:
            if match[0] == r"\$":
                return "$"
            found = self.variables.get(match[1] or match[2])
            operator, word = match[3], match[4] or ""
            is_set = bool(found) if operator and operator[0] == ":" else found is not None
            if operator and operator[-1] == "+":
                return word if is_set else ""
            return (found or "") if is_set or not operator else word

        return _VARIABLE.sub(value, text)

    def base(self, line: int, rest: str) -> None:
        words = [word for word in rest.split() if not word.startswith("--")]
        if not words:
            self.problem(line, "FROM names no image", "name one, as FROM python:3.11-slim")
            words = ["python"]
        self.stages += 1
        if self.stages > 1:
            self.needs_docker(line, "it builds in several stages")
        image = self.expand(words[0])
        python = _PYTHON_IMAGE.search(image)
        if python is None:
            self.needs_docker(line, f"its base image is {image}, not python")
        else:
            self.result.python = python["version"]

    def env(self, line: int, rest: str) -> None:
        first, _, old_form = rest.partition(" ")
        if "=" not in first:
            pairs = [(first, _unquote(old_form.strip()))]
        else:
            try:
                words = shlex.split(rest)
            except ValueError:
                self.problem(line, "its quotes don't match", 'write ENV NAME=value or ENV NAME="value"')
                return
            if broken := [word for word in words if "=" not in word]:
                self.problem(line, f"{broken[0]!r} has no =", "write ENV NAME=value; quote a value with spaces")
                return
            pairs = [(name, value) for name, _, value in (word.partition("=") for word in words)]
        expanded = {name: self.expand(value) for name, value in pairs}
        self.result.environ.update(expanded)
        self.variables.update(expanded)

    def copy(self, line: int, name: str, rest: str) -> None:
        flags, body = _flags(rest)
        if "from" in flags:
            return self.needs_docker(line, f"{name} --from copies from another image")
        if body.startswith("<<"):
            return self.needs_docker(line, f"{name} writes a file of its own")
        words = _json_words(body) or tuple(body.split())
        if len(words) < 2:
            return self.problem(line, f"{name} needs a source and a destination", f"write {name} server.py .")
        *sources, destination = [self.expand(_unquote(word)) for word in words]
        for source in sources:
            self.copied(line, name, source, destination, several=len(sources) > 1)
        return None

    def copied(self, line: int, name: str, source: str, destination: str, *, several: bool) -> None:
        """Note where in the image the folder's root would have to lie for `source` to land at `destination`."""
        if name == "ADD" and re.match(r"\w+://|git@", source):
            return self.needs_docker(line, f"ADD {source} downloads")
        target = posixpath.normpath(posixpath.join(self.result.workdir, destination))
        relative = posixpath.normpath(source.lstrip("/"))
        into_folder = several or destination.endswith(("/", ".")) or target == self.result.workdir
        matches = sorted(self.folder.glob(relative)) if relative != "." else [self.folder]
        if relative.startswith("..") or not matches:
            return self.problem(
                line, f"{name} {source}: the folder has no such file", "name a file of the env's folder"
            )
        for match in matches:
            inside = match.relative_to(self.folder).as_posix()
            lands = posixpath.join(target, match.name) if match.is_file() and into_folder else target
            if inside == ".":
                root = lands
            elif posixpath.normpath(lands).endswith("/" + inside):
                root = posixpath.normpath(lands)[: -len(inside) - 1] or "/"
            else:
                return self.needs_docker(line, f"{name} puts {inside} at {lands}, which is not the folder's own layout")
            self.roots.setdefault(root, line)
        return None

    def run(self, line: int, rest: str) -> None:
        _, body = _flags(rest)
        words = _json_words(body)
        commands = [list(words)] if words else _commands(body)
        for command in commands or [[body]]:
            if not self.harmless(command):
                return self.needs_docker(line, f"RUN {' '.join(command)}")
        return None

    def harmless(self, command: list[str]) -> bool:
        """Whether the sandbox does without this command, or does the same: pip installs of a requirements file."""
        words = list(command)
        if words[:2] == ["uv", "pip"]:
            words = words[1:]
        elif len(words) > 2 and _is_python(words[0]) and words[1:3] == ["-m", "pip"]:
            words = words[2:]
        if words[0] in ("pip", "pip3") and words[1:2] == ["install"]:
            return self.pip_install(words[2:])
        if words[0] == "mkdir":
            return all(
                posixpath.normpath(posixpath.join(self.result.workdir, word)) == self.result.workdir
                for word in words[1:]
                if not word.startswith("-")
            )
        return words[0] in _USER_COMMANDS

    def pip_install(self, words: list[str]) -> bool:
        files, packages = [], []
        takes_value = ("--index-url", "-i", "--extra-index-url", "--timeout", "--retries", "--root-user-action")
        rest = iter(words)
        for word in rest:
            if word in ("-r", "--requirement"):
                files.append(next(rest, ""))
            elif word.startswith(("-r", "--requirement=")):
                files.append(word.removeprefix("--requirement=").removeprefix("-r"))
            elif word in takes_value:
                next(rest, "")
            elif not word.startswith("-"):
                packages.append(word)
        if not files:
            return set(packages) <= {"pip", "setuptools", "wheel", "agent-env"}  # the sandbox has the last one anyway
        names = {self.inside(name) for name in files} | ({self.result.requirements} - {None})
        if packages or len(names) != 1 or None in names:
            return False
        self.result.requirements = names.pop()
        return True

    def inside(self, path: str) -> str | None:
        """A path of the image as one inside the env's folder, if there is such a file."""
        absolute = posixpath.normpath(posixpath.join(self.result.workdir, path))
        for root in [*self.roots, self.result.workdir]:
            relative = posixpath.relpath(absolute, root)
            if not relative.startswith("..") and (self.folder / relative).is_file():
                return relative
        return None

    def start(self, line: int, name: str, rest: str) -> None:
        words = _json_words(rest)
        if words is None and rest.startswith("["):
            self.problem(line, f"{name} is no JSON array of strings", f'write {name} ["python", "server.py"]')
        elif words is None:
            example = json.dumps(rest.split())
            self.needs_docker(line, f"{name} {rest} runs in a shell; without Docker it must be {name} {example}")
        if name == "CMD":
            self.cmd = words or (rest,)
        else:
            self.entrypoint = words or (rest,)

    def finish(self, line: int) -> None:
        command = (*self.entrypoint, *self.cmd)
        self.result.command = command
        if not command:
            self.problem(line, "it doesn't say how the server starts", 'end it with CMD ["python", "server.py"]')
            return
        if self.result.needs_docker is not None:
            return
        if not _is_python(command[0]):
            self.needs_docker(line, f'it starts {command[0]!r}; without Docker it must be ["python", ...]')
        if self.roots and not self.workdir_set:
            self.result.workdir = next(iter(self.roots))
        for root, copied in self.roots.items():
            if root != self.result.workdir:
                self.needs_docker(copied, f"it copies files to {root}, and starts in {self.result.workdir}")
        script = next((word for word in command[1:] if not word.startswith("-")), "")
        if script.endswith(".py") and "-m" not in command and "-c" not in command:
            relative = posixpath.relpath(posixpath.join(self.result.workdir, script), self.result.workdir)
            if not relative.startswith("..") and not (self.folder / relative).is_file():
                self.problem(line, f"it starts {script}, which the folder doesn't have", "name a file of the folder")


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, INSTRUCTION, the rest) for each instruction, comments dropped and continued lines joined."""
    number, joined = 0, ""
    for index, raw in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        number = number if joined else index
        if line.endswith("\\"):
            joined += line[:-1].rstrip() + " "
            continue
        name, _, rest = (joined + line).strip().partition(" ")
        joined = ""
        yield number, name.upper(), rest.strip()
    if joined.strip():
        name, _, rest = joined.strip().partition(" ")
        yield number, name.upper(), rest.strip()


def _flags(text: str) -> tuple[dict[str, str], str]:
    """Leading `--name=value` flags, and what follows them."""
    flags = {}
    while text.startswith("--"):
        word, _, text = text.partition(" ")
        name, _, value = word[2:].partition("=")
        flags[name] = value
        text = text.lstrip()
    return flags, text


def _json_words(text: str) -> tuple[str, ...] | None:
    """An exec form's words; None when it is not one."""
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return tuple(words)
    return None


def _commands(text: str) -> list[list[str]] | None:
    """A shell line's commands joined by `&&` or `;`; None when it is more than that."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return None
    commands: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", ";"):
            commands.append([])
        elif set(word) <= set("|&<>();") or "$(" in word or "`" in word:
            return None
        else:
            commands[-1].append(word)
    return [command for command in commands if command] or None


def _is_python(word: str) -> bool:
    return re.fullmatch(r"(?:/usr/(?:local/)?bin/)?python(?:3(?:\.\d+)?)?", word) is not None


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
