"""examples/tiny on a CPU: the model is made, warmed up for a few steps, and plays GridSim through the real server and
the session server's stand-in. Whether it learns is for a GPU; that everything fits together is for here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent_env.training.miles import agent
from tests.peers import peer_python

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TINY = ROOT / "examples" / "tiny"
COMMAND = str(Path(sys.executable).with_name("agent-env"))
TORCH = ("torch==2.13.0", "transformers==5.12.1", "numpy")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def torch_run(python: Path, *arguments: object) -> str:
    done = subprocess.run(
        [str(python), *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextlib.contextmanager
def started(command: list[str], until: str) -> Iterator[str]:
    """A process that runs for the block's time; gives its first line of output that holds `until`."""
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = next((line for line in process.stdout if until in line), None)
            assert found is not None, f"{command} ended before it said {until!r}"
            yield found
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def python() -> Path:
    return peer_python(*TORCH)


@pytest.fixture(scope="module")
def gridsim() -> Iterator[str]:
    command = [COMMAND, "serve", str(ROOT / "bundles" / "gridsim-v1"), "--port", "0"]
    with started(command, "Serving ") as line:
        yield line.split()[-1]


@pytest.fixture(scope="module")
def rows(gridsim: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rows") / "data"
    writer = [sys.executable, "-m", "agent_env.training.miles", gridsim, str(out), "--max-turns", "4"]
    subprocess.run(writer, check=True, timeout=120, capture_output=True)
    return out / "train.jsonl"


@pytest.fixture(scope="module")
def untrained(python: Path, rows: Path) -> Path:
    folder = rows.parent.parent / "random"
    torch_run(python, TINY / "model.py", rows, folder, "--layers", 2, "--width", 64)
    return folder


@pytest.fixture(scope="module")
def warm(python: Path, rows: Path, untrained: Path) -> Path:
    folder = rows.parent.parent / "warm"
    options = ["--steps", "12", "--batch", "8", "--grade-every", "6", "--grade-days", "4", "--workers", "1"]
    told = torch_run(python, TINY / "warm_start.py", rows, untrained, folder, *options)
    losses = [float(line.partition("loss ")[2].partition(",")[0]) for line in told.splitlines() if "loss" in line]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    return folder


def test_the_model_is_shown_and_taught_what_miles_shows_it(python: Path, rows: Path, untrained: Path) -> None:
    told = json.loads(torch_run(python, Path(__file__).with_name("probe.py"), rows, untrained))
    assert told.pop("expert") > 0.75
    assert told.pop("prompt tokens") < 400
    note, heard = (re.search(pattern, told["markup"])[0] for pattern in (r"Buy in .*\.", r"Accepted: .* to do\."))  # type: ignore[index]
    assert told == {
        "round trip": True,
        "split numbers": [],
        "own turns": [2],
        "as served": 0,
        "markup": (
            "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n" + note + "\n<tool_call>\n"
            '{"name": "submit_schedule", "arguments": {"schedule": [0]}}\n</tool_call><|im_end|>\n'
            "<|im_start|>user\n<tool_response>\n" + heard + "\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        ),
        "parsed": "submit_schedule",
        "not offered": None,
        "garbage": [0.0, 0.0, 0.0],
    }


async def test_the_model_plays_rollouts_through_server_and_session(python: Path, rows: Path, warm: Path) -> None:
    served = [json.loads(line) for line in rows.read_text().splitlines()[:8]]
    with (
        started([str(python), str(TINY / "serve_model.py"), str(warm), "--port", "0"], "/v1") as model,
        started(
            [COMMAND, "session-server", "--port", "0", "--strict", "--upstream", model.strip(), "--model", "tiny"],
            "http",
        ) as line,
    ):
        server = line.split()[3].rstrip(",")
        async with httpx.AsyncClient(timeout=60) as client:

            async def play(row: dict[str, object]) -> dict[str, object]:
                session = (await client.post(f"{server}/sessions")).json()["session_id"]
                return await agent.run(
                    base_url=f"{server}/sessions/{session}",
                    prompt=row["messages"],
                    request_kwargs={"temperature": 1.0, "max_tokens": 24},
                    metadata=row["metadata"],  # type: ignore[arg-type]
                )

            results = await asyncio.gather(*map(play, served))
    told = [result["agentenv"] for result in results]
    assert [one["status"] for one in told] == ["scored"] * 8, told
    assert {one["end_reason"] for one in told} <= {"replied", "length", "max_turns"}
    assert [one["index"] for one in told] == list(range(8))
