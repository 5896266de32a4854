"""Metrics: every end moves its counter exactly once, and the text is what Prometheus parses."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent_env.episode.types import ErrorKind, Event, Failure
from agent_env.monitor.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(lambda: {"capacity": 8, "live": 2, "waiting": 1, "warm": 0}, lambda: "namespaces")


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def hear(metrics: Metrics, kind: str, **data: object) -> None:
    metrics(Event(kind=kind, episode_id="e", task_id="t", time=0.0, data=data))


@pytest.mark.parametrize("reason", [*Failure, "scored", "abandoned"])
def test_every_end_moves_its_counter_exactly_once(metrics: Metrics, reason: str) -> None:
    if reason == "scored":
        hear(metrics, "scored", seconds=0.1, reward=1.0, scores={})
    elif reason != "abandoned":
        hear(metrics, "failed", reason=str(reason), message="x")
    hear(metrics, "closed", seconds=0.01)
    found = {labels: value for (name, labels), value in samples(metrics).items() if name == "agent_env_episodes_total"}
    assert found == {(str(reason),): 1.0}


@pytest.mark.parametrize("kind", list(ErrorKind))
def test_tool_errors_are_counted_by_kind(metrics: Metrics, kind: ErrorKind) -> None:
    hear(metrics, "call", tool="t", seconds=0.1, error=str(kind))
    hear(metrics, "call", tool="t", seconds=0.1, error=None)
    found = samples(metrics)
    assert found["agent_env_tool_errors_total", (str(kind),)] == 1.0
    assert found["agent_env_tool_calls_total", ()] == 2.0


def test_envs_that_could_not_be_ended_are_counted(metrics: Metrics) -> None:
    assert samples(metrics)["agent_env_leaked_envs_total", ()] == 0
    hear(metrics, "closed", seconds=30.0, leaked=2)
    assert samples(metrics)["agent_env_leaked_envs_total", ()] == 2


def test_gauges_are_read_at_scrape_time(metrics: Metrics) -> None:
    found = samples(metrics)
    assert found["agent_env_capacity", ()] == 8
    assert found["agent_env_waiting", ()] == 1
    assert found["agent_env_sandbox_tier", ("namespaces",)] == 1


def test_phases_have_histograms(metrics: Metrics) -> None:
    metrics.waited(0.2)
    hear(metrics, "deployed", seconds=0.01, envs=["x"])
    hear(metrics, "scored", seconds=0.02, reward=0.0, scores={})
    hear(metrics, "closed", seconds=0.03)
    found = samples(metrics)
    for phase in ("wait", "deploy", "score", "teardown"):
        assert found[f"agent_env_{phase}_seconds_count", ()] == 1
