"""Each test begins with no failures counted."""

from __future__ import annotations

import pytest

from agent_env.training.backoff import FailureBrake
from agent_env.training.miles import agent


@pytest.fixture(autouse=True)
def _fresh_brake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_brake", FailureBrake(agent.logger))
