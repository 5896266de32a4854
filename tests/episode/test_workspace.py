"""Tasks that work in a sandbox without an image: files, commands and probes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_env.bundle import Bundle, load_bundle
from agent_env.episode import Episode, EpisodeFailed, ErrorKind, Outcome
from agent_env.sandbox.process import ProcessSandbox

pytestmark = pytest.mark.integration

Play = Any

STEPS: list[dict[str, Any]] = [
    {
        "id": "box",
        "type": "deploy_sandbox",
        "sandbox_name": "box",
        "sandbox_type": "local",
        "env_vars": {"NAME": "Ada"},
    },
    {
        "id": "load",
        "type": "load_artifact",
        "sandbox_name": "box",
        "artifact_id": "greeting",
        "destination_path": "/app/greeting",
    },
    {"id": "agent", "type": "deploy_agent", "sandbox_name": "box"},
    {"id": "ask", "type": "prompt_agent", "prompt": "Write a greeting."},
    {
        "id": "hello",
        "type": "verify_sandbox",
        "sandbox_name": "box",
        "base_dir": "/app/greeting",
        "verifier_id": "hello",
        "score_aggregator": "weighted_average",
        "criteria": [
            {"type": "probe_file_exists", "paths": ["out.txt", "/app/greeting/check.sh"]},
            {"type": "probe_dir_exists", "paths": ["."]},
            {"type": "probe_file_contains", "paths": ["out.txt"], "expected": "^Hello.+!"},
            {"type": "bash_cmd_succeeds", "bash_cmd": "./check.sh out.txt # and nothing else", "weight": 2},
        ],
    },
]


def write_bundle(folder: Path, steps: list[dict[str, Any]]) -> Bundle:
    greeting = folder / "artifacts" / "greeting"
    greeting.mkdir(parents=True)
    (greeting / "hello.txt").write_text("Hello, World!\n")
    (greeting / "empty").touch()
    (greeting / "check.sh").write_text('#!/bin/bash\ngrep -q "$NAME" "$1"\n')
    (greeting / "check.sh").chmod(0o755)
    (folder / "tasks").mkdir()
    (folder / "tasks" / "greet.json").write_text(json.dumps(steps))
    return load_bundle(folder)


@pytest.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    """Begins the episode of these steps."""
    sandbox = ProcessSandbox()
    await sandbox.start()
    episodes: list[Episode] = []

    async def play(steps: list[dict[str, Any]] = STEPS) -> Episode:
        bundle = write_bundle(tmp_path / "box", steps)
        episodes.append(Episode(bundle.splits["all"].tasks[0], bundle, sandbox, episode_id="workspace"))
        await episodes[-1].start()
        return episodes[-1]

    try:
        async with asyncio.timeout(60):
            yield play
    finally:
        for episode in episodes:
            await episode.close()
        await sandbox.close()


async def outcome(episode: Episode) -> Any:
    ended = await episode.end_turn("done")
    assert isinstance(ended, Outcome)
    return ended.reward


async def test_files_are_loaded_changed_by_the_agent_and_probed(play: Play) -> None:
    episode = await play()
    assert [tool.name for tool in episode.tools] == ["bash", "end_turn"]
    assert (await episode.call("bash", {"command": "cat greeting/hello.txt; ls -l greeting | wc -l"})).text == (
        "Hello, World!\n4\n"
    )
    result = await episode.call("bash", {"command": 'echo "Hello, $NAME!" > /app/greeting/out.txt'})
    assert (result.text, result.error) == ("", None)
    assert await outcome(episode) == 1.0


async def test_criteria_are_scored_one_by_one(play: Play) -> None:
    episode = await play()
    await episode.call("bash", {"command": "echo Hello! > greeting/out.txt"})
    assert await outcome(episode) == pytest.approx(2 / 5)


async def test_an_untouched_sandbox_scores_what_was_there_before(play: Play) -> None:
    assert await outcome(await play()) == pytest.approx(1 / 5)


async def test_a_failing_command_is_the_models_error_with_its_output(play: Play) -> None:
    episode = await play()
    result = await episode.call("bash", {"command": "echo out; echo err >&2; exit 3"})
    assert (result.error, result.message) == (ErrorKind.EXECUTION, "out\nerr\nexit code 3")
    result = await episode.call("bash", {"command": "kill -9 $$"})
    assert (result.error, result.message) == (ErrorKind.EXECUTION, "killed by signal 9")


async def test_the_agent_cannot_end_its_server(play: Play) -> None:
    episode = await play()
    pids = "1 2 -1 -2 $PPID -$PPID"
    for command in (
        f"for pid in {pids}; do for signal in TERM INT KILL SEGV; do kill -$signal -- $pid; done; done",
        'python3 -c "import os; os.kill($PPID, 9)"',
        "head -c 1 /proc/$PPID/mem",
    ):
        assert "ermi" in (await episode.call("bash", {"command": f"{command} 2>&1; true"})).text
    assert (await episode.call("bash", {"command": "sleep 60 & kill $!; wait $!"})).message == "exit code 143"
    assert (await episode.call("bash", {"command": "echo here"})).text == "here\n"


async def test_a_late_command_is_killed_with_its_children(play: Play) -> None:
    episode = await play()
    result = await episode.call("bash", {"command": "sleep 321 & sleep 654"}, timeout=0.3)
    assert result.error is ErrorKind.TIMEOUT
    # Process 1 is the sandbox's own, a sleep too.
    left = "grep -l sleep /proc/[0-9]*/comm | grep -v ^/proc/1/"
    async with asyncio.timeout(20):
        result = await episode.call("bash", {"command": f"while {left}; do :; done; echo gone"})
    assert result.text.endswith("gone\n")


async def test_what_runs_in_the_background_neither_holds_the_call_nor_stays_as_a_zombie(play: Play) -> None:
    episode = await play()
    for _ in range(3):
        assert (
            await episode.call("bash", {"command": "(sleep 0.01; echo late) & echo now"}, timeout=10)
        ).text == "now\n"
    await asyncio.sleep(0.2)
    states = (await episode.call("bash", {"command": "cut -d' ' -f3 /proc/[0-9]*/stat"})).text.split()
    assert "Z" not in states


async def test_long_output_keeps_its_beginning_and_end(play: Play) -> None:
    episode = await play()
    text = (await episode.call("bash", {"command": "echo first; yes | head -c 5000000; echo last"}, timeout=30)).text
    assert text.startswith("first\ny\n")
    assert text.endswith("y\nlast\n")
    assert "bytes left out" in text
    assert len(text) < 1_100_000


async def test_an_expression_that_never_ends_fails_its_criterion(play: Play) -> None:
    steps = [*STEPS[:-1], {**STEPS[-1], "shell_timeout_seconds": 0.5}]
    steps[-1]["criteria"] = [
        {"type": "probe_file_contains", "paths": ["out.txt"], "expected": "(a+)+$"},
        {"type": "probe_file_exists", "paths": ["out.txt"]},
    ]
    episode = await play(steps)
    await episode.call("bash", {"command": f"echo {'a' * 60}! > greeting/out.txt"})
    assert await outcome(episode) == 0.5


async def test_an_agent_may_have_a_sandbox_of_its_own(play: Play) -> None:
    steps = [
        {"id": "agent", "type": "deploy_agent"},
        {"id": "ask", "type": "prompt_agent", "prompt": "Make a folder."},
        {
            "id": "made",
            "type": "verify_sandbox",
            "base_dir": "/project/here",
            "verifier_id": "made",
            "criteria": [{"type": "probe_dir_exists", "paths": ["made"]}],
        },
    ]
    episode = await play(steps)
    assert (await episode.call("bash", {"command": "pwd; mkdir -p /project/here/made"})).text == "/app\n"
    assert await outcome(episode) == 1.0


async def test_a_folder_that_cannot_be_written_fails_the_deploy_by_name(play: Play) -> None:
    steps = [dict(step) for step in STEPS]
    steps[1]["destination_path"] = "/usr/share/greeting"
    with pytest.raises(EpisodeFailed, match="/usr can't be written in this sandbox"):
        await play(steps)
