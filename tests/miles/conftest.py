"""Each test begins as a process does."""

from __future__ import annotations

from tests.training.conftest import _fresh_process

__all__ = ["_fresh_process"]
