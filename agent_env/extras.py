"""Packages that a command needs and a bare install lacks."""

from __future__ import annotations

import importlib.util

__all__ = ["missing"]


def missing(*packages: str) -> str | None:
    """What to say when one of these is not installed; None if all are. None of them is imported."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            return f"this needs the package {package!r}: pip install 'agent-env[openenv]'"
    return None
