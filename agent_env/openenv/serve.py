"""`agent-env serve`: serves a bundle on this machine's address, with uvicorn."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from typing import Any

import uvicorn
from fastapi import FastAPI

from agent_env.bundle import BundleError
from agent_env.episode.scores import reward_named
from agent_env.monitor.episode_log import JsonLines
from agent_env.openenv.app import build_app
from agent_env.openenv.patience import HeadTimeoutProtocol
from agent_env.openenv.protocol import MAX_MESSAGE_BYTES
from agent_env.sandbox.choose import KINDS
from agent_env.sandbox.interface import SandboxError

__all__ = ["add_arguments", "main"]

_BACKLOG = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument(
        "bundle",
        nargs="+",
        metavar="BUNDLE",
        help="a folder, an installed bundle's name, or hf://ORG/DATASET/PATH; or several as SPLIT=BUNDLE",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; 0.0.0.0: all (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8200, help="0: a free one (default: %(default)s)")
    parser.add_argument(
        "--max-concurrent-envs", type=int, default=8, metavar="N", help="episodes at once (default: %(default)s)"
    )
    parser.add_argument(
        "--token-var",
        metavar="VAR",
        help="environment variable that holds the token clients must send (default: no token)",
    )
    parser.add_argument(
        "--reward",
        metavar="STEP",
        help="where a task gives several scores: the step whose score is the reward, or `mean` of them all",
    )
    parser.add_argument("--sandbox", default="auto", choices=KINDS, help="where envs run (default: %(default)s)")
    parser.add_argument(
        "--warm", type=int, metavar="N", help="fresh envs kept ready of each kind (default: as the sandbox needs)"
    )
    parser.add_argument(
        "--call-timeout", type=float, default=600.0, metavar="SECONDS", help="for a tool call (default: %(default)g)"
    )
    parser.add_argument(
        "--verify-timeout", type=float, default=60.0, metavar="SECONDS", help="for each verifier (default: %(default)g)"
    )
    parser.add_argument(
        "--step-reward",
        type=float,
        metavar="REWARD",
        help="reward of a step that scores nothing (default: null, which OpenEnv's level-two validators refuse)",
    )
    parser.add_argument("--traces", metavar="FOLDER", help="write every episode's events to a JSONL file there")
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error"), help="(default: %(default)s)"
    )
    parser.add_argument("--log-json", action="store_true", help="log lines as JSON, an episode's with its fields")


def main(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM. 2: it can't be served so, as one line (a bundle's problems: one each) says."""
    logging.basicConfig(level=arguments.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    if arguments.log_json:
        logging.getLogger().handlers[0].setFormatter(JsonLines())
    try:
        app = _app(arguments)
        listener = _listen(arguments.host, arguments.port)
    except (BundleError, SandboxError, ValueError, OSError) as error:
        print(f"agent-env serve: {error}", file=sys.stderr)
        return 2
    # A sandbox that can't start here has said why in one line; uvicorn repeats it with a traceback.
    logging.getLogger("uvicorn.error").addFilter(lambda record: not record.getMessage().startswith("Traceback"))
    with listener:
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level=max(logging.WARNING, logging.getLogger().level),
            access_log=False,
            ws_max_size=MAX_MESSAGE_BYTES,
            http=HeadTimeoutProtocol,
            backlog=_BACKLOG,
        )
        server = _Server(config, lambda: _announce(app, arguments, listener))
        server.run(sockets=[listener])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Any) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()


def _app(arguments: argparse.Namespace) -> FastAPI:
    return build_app(
        _source(arguments.bundle),
        max_concurrent_envs=arguments.max_concurrent_envs,
        token=_token(arguments.token_var),
        reward=reward_named(arguments.reward),
        sandbox=arguments.sandbox,
        warm=arguments.warm,
        call_timeout=arguments.call_timeout,
        verify_timeout=arguments.verify_timeout,
        step_reward=arguments.step_reward,
        traces=arguments.traces,
    )


def _source(given: list[str]) -> str | dict[str, str]:
    if len(given) == 1 and ("=" not in given[0] or os.path.isdir(given[0])):
        return given[0]
    splits: dict[str, str] = {}
    for one in given:
        split, found, address = one.partition("=")
        if not found or not split or not address:
            raise ValueError(f"{one!r}: several bundles are given as SPLIT=BUNDLE, one for each split")
        if split in splits:
            raise ValueError(f"the split {split!r} is given twice")
        splits[split] = address
    return splits


def _token(variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable)
    if not token:
        raise ValueError(
            f"--token-var {variable}: that environment variable is {'empty' if token == '' else 'not set'}"
        )
    return token


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError that names the address, ValueError for a port that there can't be."""
    if not 0 <= port <= 65535:
        raise ValueError(f"--port {port}: give one from 0 to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:  # a gaierror's number is none of errno's
        why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
        raise OSError(f"can't listen on {host}:{port}: {why}; choose another with --host and --port") from None


def _announce(app: FastAPI, arguments: argparse.Namespace, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    now = app.state.status()
    splits = ", ".join(f"{name} {count:,}" for name, count in now["splits"].items())
    tier = now["tier"]
    print(f"Serving {now['env']} at http://{f'[{host}]' if ':' in host else host}:{port}")
    print(f"  tasks    {splits}")
    print(f"  sandbox  {tier['name']}" + (f" (without: {'; '.join(tier['lacks'])})" if tier["lacks"] else ""))
    print(f"  room     {now['capacity']} envs at once; /status says what they do")
    if arguments.token_var:
        print(f"  token    needed by everything but /health (from {arguments.token_var})")
    elif not _is_loopback(host):
        print("  token    none: whoever reaches this address deploys and drives envs; set one with --token-var")
    print("Ctrl-C stops it.", flush=True)


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"
