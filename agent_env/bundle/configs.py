"""The small TOML files beside envs and artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_env.bundle.files import Unreadable, read_small
from agent_env.bundle.problems import Problems, closest
from agent_env.bundle.strict import Malformed, read_toml

__all__ = ["check_config", "read_config"]


def read_config(path: Path, file: str, problems: Problems) -> dict[str, Any] | None:
    """A TOML file's tables; None when it can't be read, which is noted."""
    try:
        return read_toml(read_small(path))
    except Unreadable as error:
        problems.add(file, "", str(error), error.fix)
    except Malformed as error:
        for flaw in error.flaws:
            problems.add(file, *flaw)
    return None


def check_config(
    config: Mapping[str, Any], file: str, keys: Sequence[str], types: Sequence[str], problems: Problems
) -> bool:
    """Whether an env.toml or artifact.toml has only known keys, texts where texts belong (anywhere but in `image`), and
    a proper id. A type that isn't one of `types` has keys of its own, which are left alone."""
    before = len(problems)
    for key, value in config.items():
        if key in keys and key != "image" and not (isinstance(value, str) and value):
            problems.add(file, key, f"{value!r} is not a text", f'write {key} = "..."')
        elif key not in keys and config.get("type") in (None, *types):
            problems.add(file, key, f"{key!r} is no key of this file", closest(key, keys, "keys"))
    declared = config.get("id")
    if isinstance(declared, str) and not declared.startswith("@local/"):
        problems.add(file, "id", f"{declared!r} is no id that a bundle may declare", "write @local/NAME, or no id")
    return len(problems) == before
