"""`agent-env session-server` as a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent_env.cli import main
from tests.session_server.doubles import USER

COMMAND = [str(Path(sys.executable).with_name("agent-env")), "session-server", "--port", "0"]


@contextlib.contextmanager
def server(*options: str, cwd: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [*COMMAND, *options], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("session server on http://127.0.0.1:"), line
            yield process, line.split()[3].rstrip(",")
        finally:
            process.kill()


@pytest.mark.integration
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(stop: signal.Signals) -> None:
    with server("--policy", "end-turn", "--strict") as (process, url):
        assert httpx.get(f"{url}/health").json()["status"] == "ok"
        session = httpx.post(f"{url}/sessions").json()["session_id"]
        tool = {"type": "function", "function": {"name": "end_turn", "parameters": {"type": "object"}}}
        answer = httpx.post(f"{url}/sessions/{session}/v1/chat/completions", json={"messages": [USER], "tools": [tool]})
        assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "end_turn"
        process.send_signal(stop)
        out, err = process.communicate(timeout=15)
    assert "end_turn" in err, "each turn is told"
    assert "Traceback" not in out + err


@pytest.mark.integration
def test_a_policy_of_ones_own_is_found_in_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from agent_env.training.policies import Reply\n\n"
        "def policy(messages, tools, request):\n    return Reply('as you wish')\n"
    )
    with server("--policy", "mine:policy", cwd=tmp_path) as (_, url):
        session = httpx.post(f"{url}/sessions").json()["session_id"]
        answer = httpx.post(f"{url}/sessions/{session}/v1/chat/completions", json={"messages": [USER]})
    assert answer.json()["choices"][0]["message"]["content"] == "as you wish"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "clever"], "no policy 'clever'; there are idle, greedy, optimum, malformed, end-turn"),
        (["--policy", "nowhere_at_all:policy"], "No module named 'nowhere_at_all'"),
        (["--policy", "os:sep"], "policy 'os:sep' is str, not a callable"),
        (["--upstream", "http://127.0.0.1:9/v1"], "--upstream needs --model NAME"),
        (["--upstream", "http://h/v1", "--model", "m", "--policy", "idle"], "exclude each other"),
        (["--upstream", "http://h/v1", "--model", "m", "--key-var", "NOT_SET"], "NOT_SET is unset or empty"),
        (["--host", "203.0.113.1"], "can't listen on 203.0.113.1:0"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.environ.pop("NOT_SET", None)
    assert main(["session-server", "--port", "0", *options]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
