"""One evaluation run: its folder, what of it is left to play, its progress and its reports."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from agent_env.evaluate.models import Model
from agent_env.evaluate.play import Job, play
from agent_env.evaluate.report import write_report
from agent_env.evaluate.results import EpisodeResult, ResultsFile, read_results, write_json
from agent_env.evaluate.sources import rows_and_tags
from agent_env.evaluate.summary import PHASES, Summary, summarize
from agent_env.training.types import ServerSettings

__all__ = ["EvalRun", "Interrupted", "RunError"]


class RunError(Exception):
    """The run can't be played; str() is one line that says what to do."""


class Interrupted(Exception):
    """The run was stopped; what was played is kept."""


class EvalRun:
    """A run in its folder. `config` is what makes it this run and no other: the folder of another one is refused."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self.folder = folder
        self.config = dict(config)
        try:
            known = json.loads((folder / "config.json").read_text())
        except FileNotFoundError:
            if folder.exists() and {entry.name for entry in folder.iterdir()} - {"rows", "traces"}:
                raise RunError(f"{folder} holds other files: name another folder with --out") from None
        except (OSError, ValueError) as error:
            raise RunError(f"{folder}: {error}: name another folder with --out") from error
        else:
            if differs := [key for key in self.config if known.get(key) != self.config[key]]:
                raise RunError(
                    f"{folder} holds a run with another {differs[0]} ({known.get(differs[0])!r}, now "
                    f"{self.config[differs[0]]!r}): name another folder with --out"
                )

    async def play(self, url: str, model: Model, arguments: argparse.Namespace) -> int:
        """Play what the folder does not hold yet, then report. Returns 0, or 1 if an episode failed."""
        console = Console()
        jobs, fingerprint = await self._jobs(url, arguments)
        write_json(self.folder / "config.json", self.config)
        path = self.folder / "results.jsonl"
        done = {result.key: result for result in read_results(path)} if path.exists() else {}
        wanted = {_key(job) for job in jobs}
        left = [job for job in jobs if _key(job) not in done]
        if done:
            _say(console, f"{len(jobs) - len(left)} of {len(jobs)} episodes are in {path} already")
        began = time.monotonic()
        with ResultsFile(path) as results, _Shown(console, len(jobs), [done[k] for k in done if k in wanted]) as shown:
            await play(left, model, results, concurrency=arguments.concurrency, on_result=shown.add)
        played = [result for result in read_results(path) if result.key in wanted]
        return self._report(console, played, len(left), time.monotonic() - began, fingerprint)

    async def _jobs(self, url: str, arguments: argparse.Namespace) -> tuple[list[Job], str]:
        settings = ServerSettings(
            urls=(url,),
            token_var=arguments.token_var,
            reset_timeout=arguments.reset_timeout,
            call_timeout=arguments.call_timeout,
            model_timeout=arguments.model_timeout,
            max_turns=arguments.max_turns,
        )
        token = os.environ[arguments.token_var] if arguments.token_var else None
        try:
            rows, tags = await rows_and_tags(settings, arguments.split, self.folder / "rows", token, lambda text: None)
        except KeyError as error:
            raise RunError(f"there is no split {arguments.split!r}; there are {error.args[0]}") from None
        rows = rows[: arguments.tasks]
        fingerprint = str(rows[0]["metadata"]["server"]["bundle"]) if rows else ""
        # Sample by sample, so that an interrupted run has played all tasks about equally often.
        return [
            Job(row, sample, tag) for sample in range(arguments.samples) for row, tag in zip(rows, tags, strict=False)
        ], (fingerprint)

    def _report(
        self, console: Console, results: list[EpisodeResult], new: int, seconds: float, fingerprint: str
    ) -> int:
        summary = summarize(results)
        config = {**self.config, "bundle": fingerprint}
        write_json(self.folder / "summary.json", {"config": config, **summary.as_json()})
        traces = "traces" if (self.folder / "traces").is_dir() else None
        title = f"{self.config['model']} on {self.config['source']}, split {self.config['split']}"
        write_report(self.folder / "report.html", title, config, results, summary, traces)
        console.print(_table(summary))
        _say(console, f"median seconds: {', '.join(f'{p} {summary.phases[p]:.3f}' for p in (*PHASES, 'total'))}")
        for reason, count in summary.failures.most_common():
            _say(console, f"{count} failed, {reason}: {summary.errors[reason]}", "red")
        rate = f", {new / seconds:.1f} episodes/s" if new and seconds > 0 else ""
        _say(console, f"{new} episodes played in {seconds:.1f} s{rate}; see {self.folder / 'report.html'}")
        return 1 if summary.failures else 0


class _Shown:
    """The progress bar: running mean, failures by cause, time left. Silent without a terminal."""

    def __init__(self, console: Console, total: int, before: list[EpisodeResult]) -> None:
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total)
        self._rewards: list[float] = []
        self._failures: Counter[str] = Counter()
        for result in before:
            self.add(result)

    def __enter__(self) -> _Shown:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def add(self, result: EpisodeResult) -> None:
        if result.scored:
            self._rewards.append(result.reward)
        else:
            self._failures[result.end_reason] += 1
        mean = f"mean {sum(self._rewards) / len(self._rewards):.3f}" if self._rewards else "mean -"
        failed = "".join(f", {count} {reason}" for reason, count in self._failures.most_common(3))
        self._bar.update(self._task, advance=1, description=mean + failed)


def _key(job: Job) -> tuple[str, int, int]:
    metadata = job.row["metadata"]
    return metadata["split"], metadata["index"], job.sample


def _table(summary: Summary) -> Table:
    table = Table(title="reward of scored episodes", title_justify="left")
    for title in ("", "mean", "95 % interval", "tasks", "episodes"):
        table.add_column(title, justify="left" if not title else "right")
    rows = [("all", summary.scored)]
    rows += [(f"{tag} {value}", row) for tag, values in summary.by_tag.items() for value, row in values.items()]
    if summary.failures:
        rows.append(("all, failed as 0", summary.with_failures))
    for name, row in rows:
        table.add_row(name, f"{row.mean:.3f}", f"{row.low:.3f} to {row.high:.3f}", str(row.tasks), str(row.episodes))
    for k, value in summary.pass_at.items():
        table.add_row(f"pass@{k}", f"{value:.3f}", "", "", "")
    return table


def _say(console: Console, line: str, style: str = "") -> None:
    console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
