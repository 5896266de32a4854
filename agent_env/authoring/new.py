"""`agent-env new`: a bundle that runs, for an author to change into their own."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["NewError", "add_arguments", "main", "write_bundle"]

TEMPLATE = Path(__file__).parent / "template"
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")
PLACEHOLDER = "NAME"


class NewError(Exception):
    """The bundle can't be made; str() is one line that says what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.description = (
        "Makes a folder with a small bundle that runs: an env with two tools, three tasks, a verifier, a split and "
        "scripted policies. Its README says what each file is for."
    )
    parser.add_argument(
        "path", metavar="NAME", type=Path, help="the bundle's folder, as my-bundle or bundles/my-bundle"
    )


def main(arguments: argparse.Namespace) -> int:
    """Returns 0, or 2 if the folder can't be made."""
    try:
        files = list(write_bundle(arguments.path))
    except NewError as error:
        print(f"agent-env new: {error}", file=sys.stderr)
        return 2
    for file in files:
        print(file)
    path = arguments.path
    print(f"\nNext: agent-env check {path}; agent-env play {path}; agent-env probe {path}")
    return 0


def write_bundle(path: Path) -> Iterator[Path]:
    """Write the template as a new bundle, and give each file's path. Raises NewError, before anything is written, for
    a name that isn't one or a folder that isn't empty."""
    name = path.resolve().name
    if not NAME.fullmatch(name):
        raise NewError(f"{name!r} can't name a bundle: use lower-case letters, digits and - . _")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise NewError(f"{path} is there already: choose another name")
    try:
        for source in sorted(TEMPLATE.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                target = path / source.relative_to(TEMPLATE)
                target.parent.mkdir(parents=True, exist_ok=True)
                text = source.read_text(encoding="utf-8")
                target.write_text(re.sub(rf"\b{PLACEHOLDER}\b", name, text), encoding="utf-8")
                yield target
    except OSError as error:
        raise NewError(f"{error.filename}: {error.strerror}") from error
