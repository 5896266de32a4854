"""results.jsonl survives crashes, and errors name the line."""

from pathlib import Path

import pytest

from agent_env.evaluate.results import EpisodeResult, ResultsError, ResultsFile, by_task, read_results


def episode(index: int = 0, sample: int = 0, reward: float = 0.5, **changes: object) -> EpisodeResult:
    fields: dict[str, object] = {
        "split": "eval",
        "index": index,
        "sample": sample,
        "task_id": f"@local/b/t{index}",
        "status": "scored",
        "end_reason": "end_turn",
        "reward": reward,
    }
    return EpisodeResult.model_validate(fields | changes)


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as file:
        file.add(episode(1, tags={"duration": "4h"}))
        assert read_results(path) == [episode(1, tags={"duration": "4h"})]  # before the file is closed
        file.add(episode(0, error="line\u2028separator"))
    assert [result.index for result in read_results(tmp_path)] == [1, 0]


def test_a_line_that_a_crash_cut_is_dropped_before_the_next_is_added(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    with ResultsFile(path) as file:
        file.add(episode(0))
    path.write_bytes(path.read_bytes() + b'{"split": "ev')
    assert [result.index for result in read_results(path)] == [0]
    with ResultsFile(path) as file:
        file.add(episode(1))
    assert [result.index for result in read_results(path)] == [0, 1]


def test_errors_name_file_line_and_place(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(episode().model_dump_json() + "\n" + '{"split": "eval"}\n')
    with pytest.raises(ResultsError, match=r"results.jsonl: line 2: index"):
        read_results(path)
    with pytest.raises(ResultsError, match="name the folder of an `agent-env eval` run"):
        read_results(tmp_path / "absent")


def test_tasks_are_in_order_with_all_their_episodes() -> None:
    tasks = by_task([episode(2), episode(1, 1), episode(1, 0)])
    assert list(tasks) == [("eval", 1), ("eval", 2)]
    assert len(tasks["eval", 1]) == 2
