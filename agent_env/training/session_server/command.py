"""`agent-env session-server`: the command line."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys

from agent_env.training.policies import POLICIES, load_policy

__all__ = ["add_arguments", "main"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to its parser."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8300, help="port; 0 takes a free one (default: %(default)s)")
    model = parser.add_argument_group("what answers", "scripted policies, or an OpenAI-compatible endpoint")
    model.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"{', '.join(POLICIES)}, or module:attribute for your own callable; may be given several times: the first "
        "plays sessions that name none (default: all of the named ones)",
    )
    model.add_argument("--seconds", type=float, default=0.0, help="how long a policy takes for a turn (default: 0)")
    model.add_argument(
        "--context-length",
        type=int,
        metavar="TOKENS",
        help="a policy's context, at 4 characters a token (default: none)",
    )
    model.add_argument(
        "--upstream", metavar="URL", help="base of an OpenAI-compatible endpoint, as http://host:8000/v1"
    )
    model.add_argument("--model", metavar="NAME", help="the endpoint's model")
    model.add_argument(
        "--key-var", metavar="VAR", help="name of the environment variable that holds the endpoint's key"
    )
    model.add_argument(
        "--all-fields",
        action="store_true",
        help="pass on every field of a request, as SGLang wants them (default: those that OpenAI's API knows)",
    )
    rules = parser.add_argument_group("rules")
    rules.add_argument(
        "--strict", action="store_true", help="refuse with 400 what Miles would serve and then not train on"
    )
    rules.add_argument(
        "--append-roles",
        default="assistant,system,tool,user",
        metavar="ROLES",
        help="roles that the model's chat template takes after the first turn (default: %(default)s)",
    )
    rules.add_argument(
        "--refuse-aborted",
        action="store_true",
        help="answer an aborted generation with 503, as newer versions of Miles do",
    )


def main(arguments: argparse.Namespace) -> int:
    """Serve until interrupted. Returns 2 for wrong usage or a missing package, else 0."""
    try:
        import uvicorn

        from agent_env.training.session_server.app import build_session_app
        from agent_env.training.session_server.engines import Engine, ScriptedEngine, UpstreamEngine
    except ModuleNotFoundError as error:
        return _usage(f"the session server needs the package {error.name!r}: pip install 'agent-env[openenv]'")
    engines: dict[str, Engine] = {}
    if arguments.upstream:
        if arguments.policy:
            return _usage("--policy and --upstream exclude each other")
        if not arguments.model:
            return _usage("--upstream needs --model NAME")
        key = os.environ.get(arguments.key_var) if arguments.key_var else None
        if arguments.key_var and not key:
            return _usage(f"the environment variable {arguments.key_var} is unset or empty")
        engines["upstream"] = UpstreamEngine(
            arguments.upstream, arguments.model, key=key, all_fields=arguments.all_fields
        )
    else:
        sys.path.insert(0, os.getcwd())  # where one's own policies lie
        for name in arguments.policy or POLICIES:
            try:
                policy = load_policy(name)
            except ValueError as error:
                return _usage(str(error))
            engines[name] = ScriptedEngine(policy, context_length=arguments.context_length, seconds=arguments.seconds)
    app = build_session_app(
        engines,
        strict=arguments.strict,
        append_roles=frozenset(arguments.append_roles.split(",")),
        refuse_aborted=arguments.refuse_aborted,
    )
    try:
        listener = socket.create_server((arguments.host, arguments.port), backlog=2048)
    except OSError as error:
        return _usage(f"can't listen on {arguments.host}:{arguments.port}: {error.strerror}")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    host, port = listener.getsockname()[:2]
    print(f"session server on http://{host}:{port}, played by {', '.join(engines)}", flush=True)
    with listener:
        uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listener])
    return 0


def _usage(message: str) -> int:
    print(f"agent-env session-server: {message}", file=sys.stderr)
    return 2
