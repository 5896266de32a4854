"""Failed episodes stay out of the policy's mean and are shown beside it; the page is whole and self-contained."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from agent_env.evaluate.report import write_report
from agent_env.evaluate.results import EpisodeResult
from agent_env.evaluate.summary import summarize
from tests.evaluate.test_results import episode


def mixed() -> list[EpisodeResult]:
    scored = [
        episode(
            index, sample, reward=index / 10, tags={"duration": f"{index % 2}h"}, counts={"turns": 2, "tool_calls": 1}
        )
        for index in range(10)
        for sample in range(2)
    ]
    return [*scored, episode(11, reward=0.0, status="failed", end_reason="env_lost", error="<gone> & lost")]


def test_failures_stay_out_of_the_mean_and_are_counted_by_cause() -> None:
    summary = summarize(mixed())
    assert summary.scored.mean == pytest.approx(0.45)
    assert summary.with_failures.mean == pytest.approx(9.0 / 21)
    assert dict(summary.failures) == {"env_lost": 1}
    assert summary.ends["end_turn"] == 20
    assert summary.tool_calls == 20


def test_rewards_by_tag_and_turns() -> None:
    summary = summarize(mixed())
    assert summary.by_tag["duration"]["0h"].mean == pytest.approx(0.4)
    assert summary.by_tag["duration"]["1h"].mean == pytest.approx(0.5)
    assert list(summary.by_turns) == [2]


def test_an_empty_run_is_json_without_nan() -> None:
    assert summarize([]).as_json()["reward_scored"]["mean"] is None


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.found += [value or "" for name, value in attrs if name in ("href", "src")]


def page(tmp_path: Path, results: list[EpisodeResult], traces: str | None = None) -> str:
    path = tmp_path / "report.html"
    write_report(path, "a <b> title", {"split": "eval"}, results, summarize(results), traces)
    return path.read_text()


def test_the_page_loads_nothing_and_escapes_what_it_shows(tmp_path: Path) -> None:
    text = page(tmp_path, mixed())
    links = Links()
    links.feed(text)
    assert links.found == []
    assert "script" not in links.tags
    assert "<b>" not in text
    assert "&lt;gone&gt; &amp; lost" in text


def test_episodes_link_to_their_traces(tmp_path: Path) -> None:
    links = Links()
    links.feed(page(tmp_path, [episode(episode_id="abc")], traces="traces"))
    assert links.found == ["traces/abc.jsonl"]


def test_a_thousand_episodes_are_under_two_mebibytes(tmp_path: Path) -> None:
    results = [
        episode(index, reward=index % 100 / 100, task_id=f"@local/bundle/{'t' * 40}{index}") for index in range(1000)
    ]
    assert len(page(tmp_path, results)) < 2 * 1024 * 1024


def test_the_histogram_counts_every_episode(tmp_path: Path) -> None:
    text = page(tmp_path, mixed())
    assert sum(int(count) for count in re.findall(r"to \d\.\d\d: (\d+)</title>", text)) == 20
