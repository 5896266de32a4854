"""`agent-env eval`: play a split against a model, keep every episode as it ends, report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from agent_env.extras import missing

__all__ = ["add_arguments", "main"]

_EPILOG = """
examples:
  agent-env eval gridsim-v1 --split eval --policy greedy
  agent-env eval gridsim-v1 --split eval --base-url http://127.0.0.1:8000/v1 --model Qwen/Qwen3-4B --samples 4
  agent-env eval http://envs.internal:8200 --token-var AGENTENV_TOKEN --split eval --base-url ... --model ...

The run's folder gets results.jsonl (a line an episode, as they end), summary.json and report.html. The same command
again goes on where an interrupted run stopped. Exit codes: 0 all episodes were scored, 1 some failed, 2 wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument("source", metavar="SOURCE", help="a bundle (folder, name, hf:// address) or a server's URL")
    parser.add_argument("--split", default="eval", help="which tasks (default: %(default)s)")
    parser.add_argument("--tasks", type=int, metavar="N", help="only the first N tasks of the split (default: all)")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="episodes of each task (default: 1)")
    parser.add_argument("--concurrency", type=int, default=32, metavar="N", help="episodes at once (default: 32)")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="the run's folder (default: runs/SOURCE-SPLIT-MODEL)"
    )
    model = parser.add_argument_group("what plays", "one of --base-url, --session-server and --policy")
    model.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible endpoint, as http://127.0.0.1:8000/v1")
    model.add_argument("--model", metavar="NAME", help="the endpoint's model")
    model.add_argument("--key-var", metavar="VAR", help="environment variable that holds the endpoint's key")
    model.add_argument("--session-server", metavar="URL", help="a session server, Miles' or `agent-env session-server`")
    model.add_argument("--policy", metavar="NAME", help="a scripted policy: idle, greedy, ..., or module:attribute")
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument("--temperature", type=float, help="(default: the endpoint's)")
    sampling.add_argument("--top-p", type=float, help="(default: the endpoint's)")
    sampling.add_argument("--max-tokens", type=int, metavar="N", help="tokens of one reply (default: the endpoint's)")
    sampling.add_argument("--extra", metavar="JSON", help="more fields of every chat request, as a JSON object")
    envs = parser.add_argument_group("envs")
    envs.add_argument("--token-var", metavar="VAR", help="environment variable that holds the server's token")
    envs.add_argument("--sandbox", default="auto", help="where a bundle's envs run (default: %(default)s)")
    envs.add_argument("--reward", metavar="STEP", help="where there are several scores: which is the reward, or `mean`")
    envs.add_argument("--traces", action="store_true", help="keep every episode's events in the run's folder")
    for name, default, text in (
        ("reset-timeout", 1800.0, "waiting for room and the deploy"),
        ("call-timeout", 600.0, "one tool call"),
        ("model-timeout", 1800.0, "one chat reply"),
    ):
        envs.add_argument(
            f"--{name}", type=float, default=default, metavar="S", help=f"{text} (default: {default:g} s)"
        )
    envs.add_argument("--max-turns", type=int, default=32, metavar="N", help="chat requests an episode (default: 32)")


def main(arguments: argparse.Namespace) -> int:
    """Returns 0 if every episode was scored, 1 if some failed, 2 for wrong usage, 130 when interrupted."""
    if problem := _problem(arguments):
        return _complain(problem)
    if lacking := missing("fastapi", "uvicorn", "rich"):
        return _complain(lacking)
    from agent_env.bundle import BundleError
    from agent_env.evaluate.models import ModelError
    from agent_env.evaluate.results import ResultsError
    from agent_env.evaluate.run import Interrupted, RunError
    from agent_env.sandbox.interface import SandboxError
    from agent_env.training.miles.rows import RowsError
    from agent_env.training.types import InvalidRow

    told = (BundleError, ModelError, ResultsError, RunError, RowsError, SandboxError, InvalidRow, ValueError, OSError)
    try:
        return asyncio.run(_run(arguments))
    except Interrupted as stopped:
        print(f"agent-env eval: {stopped}", file=sys.stderr)
        return 130
    except (*told, ExceptionGroup) as error:
        first = _first(error)
        if not isinstance(first, told):
            raise
        return _complain(str(first))


async def _run(arguments: argparse.Namespace) -> int:
    from agent_env.episode.scores import reward_named
    from agent_env.evaluate.models import Endpoint, Model, SessionServer, scripted
    from agent_env.evaluate.run import EvalRun, Interrupted
    from agent_env.evaluate.sources import served

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(name, task.cancel)
    config = _config(arguments)
    sampling = config["sampling"]
    run = EvalRun(arguments.out or _default_folder(arguments), config)
    try:
        async with AsyncExitStack() as stack:
            model: Model
            if arguments.policy:
                model = await stack.enter_async_context(scripted(arguments.policy, sampling))
            elif arguments.session_server:
                model = SessionServer(arguments.session_server.rstrip("/"), None, sampling)
            else:
                key = os.environ[arguments.key_var] if arguments.key_var else None
                model = Endpoint(arguments.base_url, arguments.model, key, sampling)
            url = await stack.enter_async_context(
                served(
                    arguments.source,
                    max_concurrent_envs=arguments.concurrency,
                    sandbox=arguments.sandbox,
                    reward=reward_named(arguments.reward),
                    traces=run.folder / "traces" if arguments.traces else None,
                )
            )
            return await run.play(url, model, arguments)
    except asyncio.CancelledError:
        raise Interrupted(f"stopped; the same command goes on with what is in {run.folder}") from None


def _problem(arguments: argparse.Namespace) -> str | None:
    chosen = [name for name in ("base_url", "session_server", "policy") if getattr(arguments, name)]
    if len(chosen) != 1:
        return "say what plays: one of --base-url, --session-server and --policy"
    if arguments.base_url and not arguments.model:
        return "--base-url needs --model NAME"
    for option in ("tasks", "samples", "concurrency", "max_turns"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            return f"--{option.replace('_', '-')} must be at least 1"
    for option in ("key_var", "token_var"):
        variable = getattr(arguments, option)
        if variable and not os.environ.get(variable):
            return f"--{option.replace('_', '-')} {variable}: that environment variable is not set, or empty"
    if arguments.traces and arguments.source.startswith(("http://", "https://")):
        return (
            "--traces is for a bundle that this command serves: a running server writes traces itself (serve --traces)"
        )
    try:
        extra = json.loads(arguments.extra or "{}")
    except ValueError as error:
        return f"--extra is not JSON: {error}"
    return None if isinstance(extra, dict) else "--extra takes a JSON object"


def _config(arguments: argparse.Namespace) -> dict[str, Any]:
    """What makes two runs the same run. No key, no token."""
    sampling = {
        name: getattr(arguments, name)
        for name in ("temperature", "top_p", "max_tokens")
        if getattr(arguments, name) is not None
    }
    return {
        "source": arguments.source,
        "split": arguments.split,
        "tasks": arguments.tasks,
        "samples": arguments.samples,
        "model": arguments.policy or arguments.model or arguments.session_server,
        "base_url": arguments.base_url,
        "sampling": {**sampling, **json.loads(arguments.extra or "{}")},
        "max_turns": arguments.max_turns,
        "reward": arguments.reward,
    }


def _default_folder(arguments: argparse.Namespace) -> Path:
    model = arguments.policy or arguments.model or "session"
    words = [Path(arguments.source.rstrip("/")).name, arguments.split, model]
    return Path("runs") / "-".join("".join(c if c.isalnum() or c in "._" else "_" for c in word) for word in words)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _complain(message: str) -> int:
    print(f"agent-env eval: {message}", file=sys.stderr)
    return 2
