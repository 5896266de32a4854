"""Prometheus metrics of a server, fed by episode events and read from admission and sandbox at scrape time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent_env.episode.types import Event

__all__ = ["Metrics"]

_FAST = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class _Gauges(Collector):
    """Gauges whose values are asked for when they are scraped, so that nothing has to keep them in step."""

    def __init__(self, read: Callable[[], Mapping[str, float]], tier: Callable[[], str]) -> None:
        self._read, self._tier = read, tier

    def collect(self) -> Iterable[Metric]:
        for name, value in self._read().items():
            yield GaugeMetricFamily(f"agent_env_{name}", _GAUGE_HELP[name], value=value)
        info = GaugeMetricFamily("agent_env_sandbox_tier", "1 for the sandbox tier that is active.", labels=["tier"])
        info.add_metric([self._tier()], 1)
        yield info


_GAUGE_HELP = {
    "capacity": "Most envs that may be live at once (max_concurrent_envs).",
    "live": "Episodes that hold a slot, teardown included.",
    "waiting": "Sessions that wait for a slot.",
    "warm": "Fresh envs kept ready.",
}


class Metrics:
    """Hears every episode's events; `text()` is what /metrics answers.

    Args of the constructor: `gauges` gives any of capacity, live, waiting, warm; `tier` names the sandbox tier.
    """

    def __init__(self, gauges: Callable[[], Mapping[str, float]], tier: Callable[[], str]) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Gauges(gauges, tier))
        self._episodes = self._counter(
            "episodes", "Episodes that ended, by how: scored, or the failure's reason.", "end"
        )
        self._errors = self._counter("tool_errors", "Tool calls answered with an error, by its kind.", "kind")
        self._calls = self._counter("tool_calls", "Tool calls.")
        self._leaked = self._counter("leaked_envs", "Envs that could not be ended; something of them may be left.")
        self._wait = self._seconds("wait", "Seconds that sessions waited for a slot.")
        self._deploy = self._seconds("deploy", "Seconds from the start of a deploy to the first prompt.")
        self._call = self._seconds("call", "Seconds of a tool call.")
        self._score = self._seconds("score", "Seconds from the last end_turn to the reward.")
        self._teardown = self._seconds("teardown", "Seconds of tearing an episode down.")
        self._ended: dict[str, str] = {}

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"agent_env_{name}", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(f"agent_env_{name}_seconds", text, registry=self.registry, buckets=_FAST)

    def waited(self, seconds: float) -> None:
        self._wait.observe(seconds)

    def __call__(self, event: Event) -> None:
        data = event.data
        if event.kind == "deployed":
            self._deploy.observe(data["seconds"])
        elif event.kind == "call":
            self._calls.inc()
            self._call.observe(data["seconds"])
            if data.get("error"):
                self._errors.labels(data["error"]).inc()
        elif event.kind == "scored":
            self._score.observe(data["seconds"])
            self._ended[event.episode_id] = "scored"
        elif event.kind == "failed":
            self._ended[event.episode_id] = data["reason"]
        elif event.kind == "closed":
            self._teardown.observe(data["seconds"])
            self._leaked.inc(data.get("leaked", 0))
            # An episode that was neither scored nor failed was left by its client.
            self._episodes.labels(self._ended.pop(event.episode_id, "abandoned")).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
