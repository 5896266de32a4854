"""`agent-env trace` shows what happened, also of an episode that a crash cut short."""

import json
from pathlib import Path

import pytest

from agent_env.cli import main

EVENTS = [
    {"kind": "deployed", "seconds": 0.01, "envs": ["gridsim"]},
    {"kind": "turn_opened", "turn": 0, "prompt": "Add one.", "system_prompt": None},
    {"kind": "call", "tool": "add", "arguments": {"a": 1}, "seconds": 0.002, "result": "x" * 3000, "error": None},
    {
        "kind": "call",
        "tool": "add",
        "arguments": {},
        "seconds": 0.002,
        "result": "a is missing",
        "error": "invalid_args",
    },
    {"kind": "turn_ended", "turn": 0, "response": ""},
    {"kind": "scored", "seconds": 0.03, "reward": 0.5, "scores": {"score": 0.5}},
    {"kind": "closed", "seconds": 0.001},
]


def write(path: Path, events: list[dict[str, object]]) -> Path:
    head = {"episode_id": "e1", "task_id": "@local/b/t"}
    path.write_text("".join(json.dumps({"time": 100.0 + n, **head, **event}) + "\n" for n, event in enumerate(events)))
    return path


def test_every_event_is_shown_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(write(tmp_path / "t.jsonl", EVENTS))]) == 0
    out = capsys.readouterr().out
    places = [
        out.index(text)
        for text in (
            "episode e1",
            "deployed gridsim",
            "Add one.",
            '{"a": 1}',
            "3002 characters",
            "invalid_args",
            "scored 0.5",
            "closed",
        )
    ]
    assert places == sorted(places)
    assert "(without a reply)" in out


def test_full_shows_whole_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", "--full", str(write(tmp_path / "t.jsonl", EVENTS))])
    assert "x" * 3000 in capsys.readouterr().out


def test_a_trace_that_breaks_off_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", str(write(tmp_path / "t.jsonl", EVENTS[:3]))])
    assert "its server was killed" in capsys.readouterr().out


def test_what_is_no_trace_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text("[1]\n{}\n")
    assert main(["trace", str(tmp_path / "x.jsonl")]) == 2
    assert main(["trace", str(tmp_path / "absent")]) == 2
    assert main(["trace", str(write(tmp_path / "empty.jsonl", []))]) == 2
    assert "x.jsonl: line 1" in capsys.readouterr().err
