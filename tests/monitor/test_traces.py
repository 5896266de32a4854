"""Traces: written as things happen, bounded, readable after a crash."""

import json
from pathlib import Path

import pytest

from agent_env.episode.types import Event
from agent_env.monitor import traces
from agent_env.monitor.traces import TraceWriter, read_trace


def event(kind: str, episode_id: str = "e1", **data: object) -> Event:
    return Event(kind=kind, episode_id=episode_id, task_id="@local/b/t", time=1.5, data=data)


def test_an_event_is_in_the_file_before_the_episode_ends(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    writer(event("call", tool="add", arguments={"a": 1}, seconds=0.1, result="2", error=None))
    assert read_trace(writer.path("e1"))[0]["arguments"] == {"a": 1}
    writer.close()


def test_equal_tasks_have_a_file_each(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    for number in range(8):
        writer(event("deployed", f"e{number}", seconds=0.1, envs=["x"]))
        writer(event("closed", f"e{number}", seconds=0.0))
    assert len(list(tmp_path.iterdir())) == 8


@pytest.mark.parametrize("hostile", ["../../etc/passwd", "a/b", "", "..", "x" * 500, "\0nul"])
def test_a_clients_episode_id_cannot_leave_the_folder(tmp_path: Path, hostile: str) -> None:
    writer = TraceWriter(tmp_path)
    assert writer.path(hostile).parent == tmp_path
    assert len(writer.path(hostile).name) < 200
    writer(event("closed", hostile, seconds=0.0))
    assert len(list(tmp_path.iterdir())) == 1


def test_long_texts_are_cut_with_their_length(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path)
    writer(event("call", result="x" * 50_000))
    (found,) = read_trace(writer.path("e1"))
    assert found["result"].endswith("… (50000 characters)")
    assert len(found["result"]) < traces.MAX_TEXT + 50
    writer.close()


def test_a_full_trace_still_tells_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_TRACE_BYTES", 300)
    writer = TraceWriter(tmp_path)
    for number in range(50):
        writer(event("call", number=number))
    writer(event("scored", reward=1.0))
    writer(event("closed", seconds=0.0))
    kinds = [found["kind"] for found in read_trace(writer.path("e1"))]
    assert kinds[-2:] == ["scored", "closed"]
    assert len(kinds) < 10


def test_a_line_cut_by_a_crash_is_left_out_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"kind": "deployed"}) + '\n{"kind": "ca')
    assert [found["kind"] for found in read_trace(path)] == ["deployed"]
    path.write_text('nonsense\n{"kind": "call"}\n')
    with pytest.raises(ValueError, match="line 1"):
        read_trace(path)


def test_a_folder_that_cannot_be_written_stops_traces_not_episodes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = TraceWriter(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for _ in range(3):
        writer(event("deployed"))
    assert len([r for r in caplog.records if "can't be written" in r.message]) == 1
