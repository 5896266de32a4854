"""A corpus of broken bundles, each made from the good one."""

from __future__ import annotations

from tests.bundle.malformed.folders import FOLDERS
from tests.bundle.malformed.tasks import TASKS

__all__ = ["CORPUS"]

CORPUS = {**FOLDERS, **TASKS}
"""What is broken -> how to break it, and the problems to be found."""
