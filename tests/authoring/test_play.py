"""`agent-env play`, with lines piped in and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from agent_env.authoring.new import write_bundle

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("play") / "guessing"
    list(write_bundle(folder))
    return folder


def play(*arguments: str | Path, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_env.cli", "play", *map(str, arguments)]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=110, cwd=ROOT)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_task_is_played_with_forms_and_in_one_line_to_its_score(bundle: Path) -> None:
    lines = 'guess\n50\n1\nmany\n101\n7\n1\n7\nhistory {}\nguess {"number": 3}\n3\nit is 3\n'
    done = play(bundle, "--task", "low", lines=lines)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "Find my number, from 1 to 100" in said
    assert "number (integer, 1 to 100; your guess): 50" in said
    assert "integer, 1 to 100, not 'many'" in said  # asked again
    assert "execution_error" in said or "invalid_args" in said  # 101: the env's own word
    assert "right" in said
    assert "reward 1.000" in said


def test_what_is_no_call_is_explained_and_goes_on(bundle: Path) -> None:
    done = play(bundle, lines='\n?\n9\nfly\nguess {"number"\nguess [1]\nend_turn {}\n')
    assert done.returncode == 0
    for said in ("there is no tool '9'", "there is no tool 'fly'", "that is not JSON", "arguments are a JSON object"):
        assert said in done.stdout
    assert "reward 0.000" in done.stdout


@pytest.mark.parametrize("lines", ["", "1\n", "q\n"])
def test_leaving_scores_nothing(bundle: Path, lines: str) -> None:
    done = play(bundle, lines=lines)
    assert (done.returncode, done.stderr) == (130, "\nleft; nothing was scored\n")


def test_several_turns_show_each_prompt_and_the_tools_of_their_turn() -> None:
    done = play("helpdesk-v1", "--task", "eval-000", lines="list_tickets {}\nend_turn {}\nend_turn {}\nend_turn {}\n")
    assert done.returncode == 0, done.stderr
    first, second, third = re.split(r"─ turn \d ─", done.stdout)[1:]
    assert "6 tickets are new" in first
    assert "update_person(" not in first + second
    assert "update_person(" in third
    assert "reward 0.000" in third
    assert all(step in third for step in ("triage", "answer", "changes"))


def test_a_task_or_bundle_that_is_not_there_is_told_in_a_line(bundle: Path) -> None:
    done = play(bundle, "--task", "lowe")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("agent-env play: guessing has no task 'lowe'; ")
    assert "'low'" in done.stderr
    assert play("nowhere").returncode == 2
    assert "it gives score" in play(bundle, "--reward", "total").stderr
    assert "sandbox 'vm' is not known" in play(bundle, "--sandbox", "vm").stderr


def test_ctrl_c_ends_a_call_that_takes_long() -> None:
    command = [sys.executable, "-m", "agent_env.cli", "play", "terminal-v1"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdin is not None
    try:
        process.stdin.write('bash {"command": "sleep 54321"}\n')
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not (
            sleeping := [p for p in psutil.Process(process.pid).children(recursive=True) if p.name() == "sleep"]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (130, "\nleft; nothing was scored\n")
        assert psutil.wait_procs(sleeping, timeout=10)[1] == []
    finally:
        process.kill()
        process.communicate()


def waits_for_a_key(pid: int) -> bool:
    """Whether its main thread is in select(2), as readline is: select and pselect6 of x86-64, pselect6 of arm64."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("23", "270", "72")


def test_ctrl_c_on_a_terminal_leaves_nothing_behind(bundle: Path) -> None:
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "agent_env.cli", "play", str(bundle)]
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=ROOT, start_new_session=True
    )
    os.close(terminal)
    try:
        said = b""
        deadline = time.monotonic() + 60
        while b"> " not in said:
            assert time.monotonic() < deadline, said
            if select.select([main], [], [], 1)[0]:
                said += os.read(main, 65536)
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        # A signal between the prompt and the wait for a key is heard with the next one only, in any Python program; and
        # nobody presses a key that fast.
        while not waits_for_a_key(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal's Ctrl-C does
        while select.select([main], [], [], 30)[0]:
            try:
                more = os.read(main, 65536)
            except OSError:
                break  # its end of the terminal is closed
            said += more
        assert process.wait(30) == 130
        assert b"left; nothing was scored" in said
        assert b"Traceback" not in said
        assert psutil.wait_procs(children, timeout=10)[1] == []
    finally:
        process.kill()
        process.wait()
        os.close(main)
