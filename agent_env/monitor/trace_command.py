"""`agent-env trace`: one episode's trace, readable in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent_env.monitor.traces import read_trace

__all__ = ["add_arguments", "main", "render"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="a trace: traces/EPISODE.jsonl of a server or an eval run"
    )
    parser.add_argument("--full", action="store_true", help="show texts whole (default: their first 2000 characters)")


def main(arguments: argparse.Namespace) -> int:
    """Returns 0, or 2 if the file is no trace."""
    try:
        events = read_trace(arguments.file)
    except (OSError, ValueError) as error:
        print(f"agent-env trace: {error}", file=sys.stderr)
        return 2
    if not events:
        print(f"agent-env trace: {arguments.file}: empty", file=sys.stderr)
        return 2
    for line in render(events, None if arguments.full else 2000):
        print(line)
    return 0


def render(events: list[dict[str, Any]], most: int | None) -> Iterator[str]:
    """The trace's lines. `most`: characters of a text that are shown; None: all."""
    first = events[0]
    began = float(first.get("time", 0.0))
    yield f"episode {first.get('episode_id')} of {first.get('task_id')}, {datetime.fromtimestamp(began, UTC):%F %T} UTC"
    for event in events:
        head, *texts = _lines(event)
        yield f"{float(event.get('time', began)) - began:9.3f} s  {head}"
        for text in texts:
            shown = text if most is None or len(text) <= most else f"{text[:most]}… ({len(text)} characters; --full)"
            for line in shown.splitlines() or [""]:
                yield f"             {line}"
    if events[-1].get("kind") != "closed":
        yield "             (the trace ends here: the episode is live, or its server was killed)"


def _lines(event: Mapping[str, Any]) -> Iterator[str]:
    """A headline, then the texts that belong under it."""
    kind, seconds = event.get("kind"), event.get("seconds")
    took = f" ({seconds:.3f} s)" if isinstance(seconds, int | float) else ""
    if kind == "call":
        error = f": {event['error']}" if event.get("error") else ""
        yield f"call {event.get('tool')}{took}{error}"
        yield json.dumps(event.get("arguments"), ensure_ascii=False)
        yield f"→ {event.get('result')}"
    elif kind == "deployed":
        yield f"deployed {', '.join(map(str, event.get('envs', [])))}{took}"
    elif kind == "turn_opened":
        yield f"turn {event.get('turn')}"
        yield str(event.get("prompt"))
    elif kind == "turn_ended":
        yield f"turn {event.get('turn')} ended"
        yield str(event.get("response") or "(without a reply)")
    elif kind == "scored":
        yield f"scored {event.get('reward')}{took}"
        yield json.dumps(event.get("scores"))
    elif kind == "failed":
        yield f"failed: {event.get('reason')}"
        yield str(event.get("message"))
    else:
        yield f"{kind}{took}"
