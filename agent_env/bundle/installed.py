"""Bundles that installed packages bring: entry points of the group `agent_env.bundles`.

An entry point's name is the bundle's, its value the package in whose folder the bundle's folder lies. The package is
found, never imported. Our own bundles lie in `agent_env.bundled` once installed, and in `bundles/` in a checkout.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import agent_env

__all__ = ["find_installed", "installed_names"]

GROUP = "agent_env.bundles"
_OWN = "agent_env.bundled"


def installed_names() -> tuple[str, ...]:
    """The names of all installed bundles, sorted."""
    own = {path.name for folder in _own_folders() if folder.is_dir() for path in folder.iterdir() if _is_bundle(path)}
    return tuple(sorted(own | {point.name for point in metadata.entry_points(group=GROUP)}))


def find_installed(name: str) -> Path | None:
    """The folder of an installed bundle; None when no package brings one of this name."""
    if not name or "/" in name or name.startswith("."):
        return None
    for point in metadata.entry_points(group=GROUP, name=name):
        folders = _own_folders() if point.value == _OWN else _package_folders(point.value)
        for folder in folders:
            if (folder / name).is_dir():
                return folder / name
    return next((folder / name for folder in _own_folders() if _is_bundle(folder / name)), None)


def _package_folders(package: str) -> list[Path]:
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(location) for location in (spec.submodule_search_locations or ())] if spec else []


def _own_folders() -> list[Path]:
    package = Path(agent_env.__file__).parent
    return [package / "bundled", package.parent / "bundles"]


def _is_bundle(path: Path) -> bool:
    return (path / "tasks").is_dir()
