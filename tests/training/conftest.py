"""Each test begins as a process does: with no failures counted, and nothing said yet that is said once a minute."""

from __future__ import annotations

import pytest

from agent_env.training import episode, opening, rollout
from agent_env.training.backoff import FailureBrake
from agent_env.training.miles import agent


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_brake", FailureBrake(agent.logger))
    for module in (episode, opening, rollout):
        monkeypatch.setattr(module._notices, "_kinds", {})
