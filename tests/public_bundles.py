"""The public framework's example bundles. They prompt nobody: here each gets an agent and a prompt."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_env.bundle import Bundle
from agent_env.episode import Episode, Outcome
from agent_env.sandbox import Sandbox

__all__ = ["EXAMPLES", "copy_example", "plays"]


@dataclass(frozen=True, slots=True)
class Example:
    """One task of an example, and what is called in it."""

    task: str
    place: int
    """The step that the agent and the prompt are put before."""
    agent: Mapping[str, Any]
    """What its deploy says."""
    tool: str
    arguments: Mapping[str, Any]
    reply: str


EXAMPLES = {
    "hello": Example("hello", 2, {"sandbox_name": "box"}, "bash", {"command": "cat greeting/hello.txt"}, "hello\n"),
    "echo-mcp": Example("smoke", 1, {"env_ids": ["echo"]}, "echo", {"text": "hi"}, "hi"),
    "mail-mcp": Example("smoke", 1, {"env_ids": ["mail"]}, "search_emails", {"query": "nothing"}, "[]"),
}


def copy_example(name: str, examples: Path, folder: Path) -> Path:
    """Copy an example into `folder`, with an agent that is prompted; the bundle's folder."""
    example = EXAMPLES[name]
    copy = folder / name
    shutil.copytree(examples / name, copy)
    file = copy / "tasks" / f"{example.task}.json"
    steps = json.loads(file.read_text())
    steps[example.place : example.place] = [
        {"id": "agent", "type": "deploy_agent", **example.agent},
        {"id": "ask", "type": "prompt_agent", "prompt": "Look around."},
    ]
    file.write_text(json.dumps(steps))
    return copy


async def plays(name: str, bundle: Bundle, sandbox: Sandbox, *, timeout: float) -> None:
    """The example's task comes up within `timeout` seconds, answers its call, and scores 1."""
    example = EXAMPLES[name]
    episode = Episode(bundle.splits["all"].tasks[0], bundle, sandbox, episode_id="public")
    try:
        async with asyncio.timeout(timeout):
            await episode.start()
            assert (await episode.call(example.tool, example.arguments)).text == example.reply
            outcome = await episode.end_turn("done")
    finally:
        await episode.close()
    assert isinstance(outcome, Outcome)
    assert outcome.reward == 1.0
