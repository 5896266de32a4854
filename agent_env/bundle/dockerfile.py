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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_env.bundle.docker_lines import exec_form, expand, instructions, shell_commands, split_flags, unquote
from agent_env.bundle.problems import Problems

__all__ = ["Dockerfile", "read_dockerfile"]

_HARMLESS = frozenset({"ARG", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "USER"})
"""Instructions that change nothing about how the server runs without its image."""
_PYTHON_IMAGE = re.compile(r"(?:^|/)python(?::(?P<version>3\.\d+)?[^@/]*)?(?:@[\w:]+)?$")
_PYTHON = re.compile(r"(?:/usr/(?:local/)?bin/)?python(?:3(?:\.\d+)?)?")
_SYSTEM = re.compile(r"/(?:$|(?:bin|boot|dev|etc|lib\w*|proc|run|sbin|sys|tmp|usr)(?:/|$))")
"""Folders that a sandbox has already, and that nothing can be made in."""
_USER_COMMANDS = frozenset({"adduser", "addgroup", "chmod", "chown", "groupadd", "useradd"})
"""Commands that only serve the image's own user."""
_PIP_VALUES = frozenset(
    {"--index-url", "-i", "--extra-index-url", "--find-links", "-f", "--timeout", "--retries", "--root-user-action"}
)
"""Options of pip whose value is the next word."""
_PROVIDED = re.compile(r"(?:pip|setuptools|wheel|agent[-_.]env)(?![\w.-])", re.IGNORECASE)
"""Packages that every env has without the image: `agent_env.env` is on each env's path."""
_LONGEST_REASON = 200
_DOLLAR = "\0"
"""Stands for an escaped `$` while quotes are taken off."""


@dataclass(slots=True)
class Dockerfile:
    """What a Dockerfile says; without `needs_docker`, enough to start the server from the env's folder itself."""

    command: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    python: str | None = None
    """The Python version of its base image, as `3.12`, if its tag says it."""
    writable: tuple[str, ...] = ()
    """Empty folders that it makes outside the env's own, absolute."""
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
        for line, name, rest in instructions(text):
            if not self.stages and name not in ("FROM", "ARG"):
                break
            self.instruction(line, name, rest)
        if self.stages:
            self.finish(line)
        else:
            self.problem(line, "it doesn't begin with FROM", "begin with a base image, as FROM python:3.11-slim")
        return self.result

    def instruction(self, line: int, name: str, rest: str) -> None:
        if name == "FROM":
            self.base(line, rest)
        elif name == "ARG":
            key, _, value = rest.partition("=")
            self.variables.setdefault(key.strip(), self.expand(unquote(value)))
        elif name == "ENV":
            self.env(line, rest)
        elif name == "WORKDIR":
            self.workdir_set = True
            self.result.workdir = self.in_image(self.expand(unquote(rest)))
        elif name in ("COPY", "ADD"):
            self.copy(line, name, rest)
        elif name == "RUN":
            self.run(line, rest)
        elif name in ("CMD", "ENTRYPOINT"):
            self.start(line, name, rest)
        elif name == "VOLUME":
            if not all(self.makes_folder(path) for path in exec_form(rest) or rest.split()):
                self.needs_docker(line, f"VOLUME {rest}")
        elif name == "ONBUILD":
            self.needs_docker(line, f"ONBUILD {rest}")
        elif name not in _HARMLESS:
            self.problem(line, f"{name} is no Dockerfile instruction", "mend or remove the line")

    def problem(self, line: int, what: str, fix: str) -> None:
        self.problems.add(self.file, f"line {line}", what, fix)

    def needs_docker(self, line: int, why: str) -> None:
        if self.result.needs_docker is None:
            why = why if len(why) <= _LONGEST_REASON else why[: _LONGEST_REASON - 1] + "…"
            self.result.needs_docker = f"Dockerfile line {line}: {why}"

    def expand(self, text: str) -> str:
        return expand(text, self.variables)

    def in_image(self, path: str) -> str:
        """An absolute path in the image."""
        return posixpath.normpath(posixpath.join(self.result.workdir, path))

    def base(self, line: int, rest: str) -> None:
        words = [word for word in rest.split() if not word.startswith("--")]
        if not words:
            self.problem(line, "FROM names no image", "name one, as FROM python:3.11-slim")
        self.stages += 1
        if self.stages > 1:
            self.needs_docker(line, "it builds in several stages")
        image = self.expand(words[0]) if words else "python"
        python = _PYTHON_IMAGE.search(image)
        if python is None:
            self.needs_docker(line, f"its base image is {image}, not python")
        else:
            self.result.python = python["version"]

    def env(self, line: int, rest: str) -> None:
        first, _, old_form = rest.partition(" ")
        if "=" not in first:
            words = [f"{first}={unquote(old_form)}"]
        else:
            try:
                words = shlex.split(rest.replace(r"\$", _DOLLAR))
            except ValueError:
                self.problem(line, "its quotes don't match", 'write ENV NAME=value or ENV NAME="value"')
                return
        for word in words:
            name, equals, value = word.partition("=")
            if equals and name:
                self.result.environ[name] = self.variables[name] = self.expand(value).replace(_DOLLAR, "$")
            else:
                self.problem(line, f"{word!r} is no NAME=value", "quote a value that has spaces")

    def copy(self, line: int, name: str, rest: str) -> None:
        flags, body = split_flags(rest)
        if "from" in flags:
            return self.needs_docker(line, f"{name} --from copies from another image")
        if body.startswith("<<"):
            return self.needs_docker(line, f"{name} writes a file of its own")
        words = exec_form(body) or tuple(body.split())
        if len(words) < 2:
            return self.problem(line, f"{name} needs a source and a destination", f"write {name} server.py .")
        *sources, destination = [self.expand(unquote(word)) for word in words]
        for source in sources:
            self.copied(line, name, source, destination, several=len(sources) > 1)
        return None

    def copied(self, line: int, name: str, source: str, destination: str, *, several: bool) -> None:
        """Note where in the image the folder itself would have to lie for `source` to land at `destination`."""
        if name == "ADD" and re.match(r"\w+://|git@", source):
            return self.needs_docker(line, f"ADD {source} downloads")
        relative = posixpath.normpath(source.lstrip("/")) if source != "/" else "."
        found = [self.folder] if relative == "." else self.matching(relative)
        if relative.startswith("..") or not found:
            return self.problem(
                line, f"{name} {source}: the folder has no such file", "name a file of the env's folder"
            )
        target = self.in_image(destination)
        into_folder = several or destination.endswith(("/", ".")) or target == self.result.workdir or len(found) > 1
        for path in found:
            inside = path.relative_to(self.folder).as_posix()
            lands = posixpath.join(target, path.name) if path.is_file() and into_folder else target
            if inside == ".":
                self.roots.setdefault(lands, line)
            elif lands.endswith(f"/{inside}"):
                self.roots.setdefault(lands.removesuffix(f"/{inside}") or "/", line)
            else:
                return self.needs_docker(line, f"{name} puts {inside} at {lands}, which is not the folder's own layout")
        return None

    def matching(self, pattern: str) -> list[Path]:
        try:
            return sorted(self.folder.glob(pattern))
        except (ValueError, OSError):  # no pattern, or no name that a file can have
            return []

    def run(self, line: int, rest: str) -> None:
        body = split_flags(rest)[1]
        words = exec_form(body)
        commands = [list(words)] if words else shell_commands(body)
        if commands is None:
            return self.needs_docker(line, f"RUN {body}")
        for command in commands:
            if not self.harmless(command):
                return self.needs_docker(line, f"RUN {shlex.join(command)}")
        return None

    def harmless(self, words: Sequence[str]) -> bool:
        """Whether the sandbox does without this command, or does the same: pip's install of a requirements file."""
        if words[0] == "uv":
            words = words[1:]
        elif _PYTHON.fullmatch(words[0]) and list(words[1:2]) == ["-m"]:
            words = words[2:]
        if list(words[:2]) in (["pip", "install"], ["pip3", "install"]):
            return self.pip_install(words[2:])
        if words[:1] == ["mkdir"]:
            return all(self.makes_folder(word) for word in words[1:] if not word.startswith("-"))
        return bool(words) and words[0] in _USER_COMMANDS

    def makes_folder(self, path: str) -> bool:
        """Whether the sandbox can make an empty folder here too, which it then does."""
        path = self.in_image(self.expand(path))
        if path == self.result.workdir:
            return True
        if _SYSTEM.match(path) or path.startswith(f"{self.result.workdir}/"):
            return False
        if path not in self.result.writable:
            self.result.writable = (*self.result.writable, path)
        return True

    def pip_install(self, words: Sequence[str]) -> bool:
        files: list[str] = []
        packages: list[str] = []
        rest = iter(words)
        for word in rest:
            if word in ("-r", "--requirement"):
                files.append(next(rest, ""))
            elif word.startswith(("-r", "--requirement=")):
                files.append(word.removeprefix("--requirement=").removeprefix("-r"))
            elif word in _PIP_VALUES:
                next(rest, "")
            elif not word.startswith("-") and not _PROVIDED.match(word):
                packages.append(word)
        names = {self.in_folder(name) for name in files}
        if self.result.requirements is not None:
            names.add(self.result.requirements)
        if packages or None in names or len(names) > 1:
            return False
        self.result.requirements = next(iter(names), None)
        return True

    def in_folder(self, path: str) -> str | None:
        """A path of the image as one inside the env's folder, if there is such a file."""
        for root in [*self.roots, self.result.workdir]:
            relative = posixpath.relpath(self.in_image(self.expand(path)), root)
            if not relative.startswith("..") and (self.folder / relative).is_file():
                return relative
        return None

    def start(self, line: int, name: str, rest: str) -> None:
        words = exec_form(rest)
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
        self.result.command = command = (*self.entrypoint, *self.cmd)
        if not command:
            self.problem(line, "it doesn't say how the server starts", 'end it with CMD ["python", "server.py"]')
        if not command or self.result.needs_docker is not None:
            self.result.writable = ()  # the image has them
            return
        if not _PYTHON.fullmatch(command[0]):
            self.needs_docker(line, f'it starts {command[0]!r}; without Docker it must be ["python", ...]')
        if self.roots and not self.workdir_set:
            self.result.workdir = next(iter(self.roots))
        for root, copied in self.roots.items():
            if root != self.result.workdir:
                self.needs_docker(copied, f"it copies files to {root}, and starts in {self.result.workdir}")
        if self.result.needs_docker is None:
            self.result.command = ("python", *self.arguments(line, command[1:]))

    def arguments(self, line: int, words: Sequence[str]) -> tuple[str, ...]:
        """Python's arguments, with its script as a path inside the folder."""
        if {"-m", "-c"} & set(words):
            return tuple(words)
        index = next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))
        script = words[index] if index < len(words) else ""
        inside = posixpath.relpath(self.in_image(script), self.result.workdir)
        if not script.endswith(".py") or inside.startswith(".."):
            return tuple(words)
        if not (self.folder / inside).is_file():
            self.problem(line, f"it starts {script}, which the folder doesn't have", "name a file of the folder")
        return (*words[:index], inside, *words[index + 1 :])
