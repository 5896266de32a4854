"""report.html: one self-contained page of an evaluation. It opens offline, loads nothing, and runs no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from agent_env.evaluate.plots import histogram, intervals, stacked_bar
from agent_env.evaluate.results import EpisodeResult
from agent_env.evaluate.summary import PHASES, Summary

__all__ = ["write_report"]

MAX_ROWS = 2000
"""Episodes in the table; results.jsonl holds them all."""
_ERROR_CHARS = 160

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2327; --soft: #5b6670; --paper: #fff; --rule: #d5dbe0; --bar: #2a6f97;
  --bad: #b3261e; --p0: #8d99a6; --p1: #e09f3e; --p2: #2a6f97; --p3: #5f8f5b; --p4: #8e5ba6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #9aa5af; --paper: #14181b; --rule: #333b42;
  --bar: #6cb4dd; --bad: #ff8a80; --p0: #76828e; --p1: #f0b866; --p2: #6cb4dd; --p3: #8fc58a; --p4: #c39ad6; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 860px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.big { font-size: 2.2rem; font-weight: 600; } .soft, .small { color: var(--soft); } .bad { color: var(--bad); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 13px; }
svg text.small { fill: var(--soft); font-size: 11px; } .bar, .dot { fill: var(--bar); }
.axis { stroke: var(--soft); } .grid { stroke: var(--rule); }
.range { stroke: var(--bar); stroke-width: 3; opacity: .5; }
.phase0 { fill: var(--p0); } .phase1 { fill: var(--p1); } .phase2 { fill: var(--p2); } .phase3 { fill: var(--p3); }
.phase4 { fill: var(--p4); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.number, th.number { text-align: right; } .wide { overflow-x: auto; }
"""


def write_report(
    path: Path,
    title: str,
    config: Mapping[str, Any],
    results: Sequence[EpisodeResult],
    summary: Summary,
    traces: str | None,
) -> None:
    """Write the page whole or not at all. `traces`: the traces' folder relative to the page, to link episodes to."""
    part = path.with_suffix(".html.part")
    part.write_text("".join(_page(title, config, results, summary, traces)), encoding="utf-8")
    part.replace(path)


def _page(
    title: str, config: Mapping[str, Any], results: Sequence[EpisodeResult], summary: Summary, traces: str | None
) -> Iterable[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
    settings = ", ".join(f"{key} {value}" for key, value in config.items() if value not in (None, {}))
    yield f'<p class="soft">{escape(settings)}</p>'
    scored, failed = summary.scored, summary.failures.total()
    yield f'<p><span class="big">{scored.mean:.3f}</span> mean reward of {scored.episodes} scored episodes, '
    yield f"95 % interval {scored.low:.3f} to {scored.high:.3f}, by {scored.tasks} tasks. "
    if failed:
        yield f'<span class="bad">{failed} failed</span>; counted as 0, the mean is {summary.with_failures.mean:.3f}.'
    yield "</p>"
    if summary.pass_at:
        yield f"<p>pass@k: {', '.join(f'{k}: {value:.3f}' for k, value in summary.pass_at.items())}</p>"
    yield f"<h2>Rewards</h2>{histogram([result.reward for result in results if result.scored])}"
    for tag, values in summary.by_tag.items():
        yield f"<h2>Reward by {escape(tag)}</h2>{intervals(values)}"
    by_turns = {f"{turns} turns": row for turns, row in summary.by_turns.items()}
    yield f"<h2>Reward by model turns</h2>{intervals(by_turns)}"
    phases = {phase: summary.phases[phase] for phase in PHASES}
    yield f"<h2>Time of an episode, median by phase</h2>{stacked_bar(phases)}"
    yield "<h2>How episodes ended</h2><table>"
    for reason, count in summary.ends.most_common():
        kind, why = ("bad", summary.errors.get(reason, "")) if reason in summary.failures else ("", "")
        yield f'<tr><td class="{kind}">{escape(reason)}</td><td class="number">{count}</td>'
        yield f'<td class="soft">{escape(why[:_ERROR_CHARS])}</td></tr>'
    wrong = f"{summary.invalid_arguments} with invalid arguments, {summary.unknown_tools} of unknown tools"
    yield f'</table><p class="soft">{summary.tool_calls} tool calls: {wrong}. '
    yield f"{summary.recoveries} lost envs were replaced by replay.</p>"
    yield from _table(results, traces)
    yield "</body></html>"


def _table(results: Sequence[EpisodeResult], traces: str | None) -> Iterable[str]:
    yield "<h2>Episodes</h2>"
    if len(results) > MAX_ROWS:
        yield f'<p class="soft">{MAX_ROWS} of {len(results)}, lowest rewards first; all are in results.jsonl.</p>'
    yield '<div class="wide"><table><tr><th>task</th><th class="number">sample</th><th class="number">reward</th>'
    yield '<th>end</th><th class="number">turns</th><th class="number">seconds</th></tr>'
    for result in sorted(results, key=lambda one: (one.scored, one.reward, one.key))[:MAX_ROWS]:
        name = escape(result.task_id.rpartition("/")[2] or f"{result.split} {result.index}")
        if traces and result.episode_id:
            name = f'<a href="{escape(traces)}/{escape(result.episode_id)}.jsonl">{name}</a>'
        kind = "" if result.scored else ' class="bad"'
        yield f'<tr><td>{name}</td><td class="number">{result.sample}</td><td class="number">{result.reward:.3f}</td>'
        yield f'<td{kind} title="{escape((result.error or "")[:_ERROR_CHARS])}">{escape(result.end_reason)}</td>'
        yield f'<td class="number">{result.counts.get("turns", 0)}</td>'
        yield f'<td class="number">{result.seconds.get("total", 0.0):.2f}</td></tr>'
    yield "</table></div>"
