"""How groups become a line of the table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from agent_env.cli import main
from agent_env.quickstart import result_of
from agent_env.sandbox.interface import SandboxUnavailable
from agent_env.training.rehearsal import Group, Sample

PROMPT = "power: 5 MW\nduration: {} h (at most 5 MWh)\nefficiency: 90%\nwear: $5.00 per MWh\n\n" + "".join(
    f"{hour}: 1.00\n" for hour in range(24)
)


def sample(duration: int, reward: float | None, **told: Any) -> Sample:
    prompt = [{"role": "system", "content": "x"}, {"role": "user", "content": PROMPT.format(duration)}]
    return Sample(prompt=prompt, metadata={"agentenv": told} if told else {}, reward=reward, warnings=[])


def test_rewards_are_averaged_over_all_days_and_by_duration() -> None:
    scored = {"status": "scored", "seconds": {"deploy": 0.5}}
    groups = [
        Group((sample(1, 1.0, **scored), sample(1, 0.5, **scored)), kept=True),
        Group((sample(4, 0.0, **scored), sample(4, 0.5, **scored)), kept=True),
    ]
    result = result_of("greedy", groups, 2.0)
    assert sorted(result.rewards) == [0.0, 0.5, 0.5, 1.0]
    assert result.by_duration == {1: 0.75, 4: 0.25}
    assert (result.kept, result.groups, result.failures) == (2, 2, Counter())
    assert result.phases == {"deploy": 0.5}


def test_failures_are_counted_by_cause_and_are_zeros() -> None:
    lost = sample(2, 0.0, status="failed", end_reason="env_lost", error="it died")
    result = result_of("idle", [Group((lost, sample(2, None)), kept=False)], 1.0)
    assert result.rewards == (0.0, 0.0)
    assert result.failures == {"env_lost: it died": 1, "no chat turn: the session recorded none": 1}
    assert result.kept == 0


def test_a_useless_number_is_wrong_usage(capsys: Any) -> None:
    for option in ("--days", "--group", "--concurrency"):
        assert main(["quickstart", option, "0"]) == 2
        assert capsys.readouterr().err == f"agent-env quickstart: {option} must be at least 1\n"


def test_a_machine_that_can_run_no_sandbox_is_told_in_one_line(capsys: Any, monkeypatch: Any) -> None:
    def build_app(*args: Any, **options: Any) -> None:
        raise SandboxUnavailable("no namespaces here: choose a tier by name")

    monkeypatch.setattr("agent_env.openenv.build_app", build_app, raising=False)
    assert main(["quickstart"]) == 1
    assert capsys.readouterr().err == "agent-env quickstart: no namespaces here: choose a tier by name\n"
