"""Each test begins with no failures counted, as the trainer side's do."""

from __future__ import annotations

from tests.training.conftest import _fresh_brake

__all__ = ["_fresh_brake"]
