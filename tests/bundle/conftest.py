"""The good bundle, in a folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bundle import good


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return good.make(tmp_path)
