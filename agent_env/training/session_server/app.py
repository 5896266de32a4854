"""The session server as an ASGI app: the routes, and who holds which session."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent_env.training.session_server.engines import Engine
from agent_env.training.session_server.history import (
    ALL_ROLES,
    BadRequest,
    InternalError,
    Session,
    SessionError,
    SessionNotFound,
)

__all__ = ["build_session_app"]

logger = logging.getLogger(__name__)

CONTROL = frozenset({"evaluation", "temperature", "top_p", "top_k"})
"""What newer versions of Miles say when they open a session; taken and not used."""


def build_session_app(
    engines: Mapping[str, Engine],
    *,
    strict: bool = False,
    append_roles: frozenset[str] = ALL_ROLES,
    refuse_aborted: bool = False,
) -> Starlette:
    """A stand-in for Miles' session server.

    `engines`: by name. A session is played by the first, or by the one that `POST /sessions {"policy": NAME}` names.
    `strict`: refuse with 400 what Miles serves but then doesn't train on. `append_roles`: the roles that a request may
    append to the history. `refuse_aborted`: answer an aborted generation with 503 and forget it, as newer versions of
    Miles do, instead of recording it with `finish_reason` `abort`.
    """
    server = _Server(engines, strict=strict, append_roles=append_roles, refuse_aborted=refuse_aborted)
    return Starlette(
        routes=[
            Route("/health", server.health, methods=["GET"]),
            Route("/abort_request", server.abort, methods=["POST"]),
            Route("/sessions", server.open, methods=["POST"]),
            Route("/sessions/{session_id}", server.read, methods=["GET"]),
            Route("/sessions/{session_id}", server.delete, methods=["DELETE"]),
            Route("/sessions/{session_id}/v1/chat/completions", server.chat, methods=["POST"]),
        ],
        exception_handlers={
            SessionError: _session_error,
            InternalError: _internal_error,
            ClientDisconnect: _client_gone,
        },
        lifespan=server.lifespan,
    )


class _Server:
    def __init__(
        self, engines: Mapping[str, Engine], *, strict: bool, append_roles: frozenset[str], refuse_aborted: bool
    ) -> None:
        if not engines:
            raise ValueError("a session server needs at least one engine")
        self.engines = engines
        self.strict = strict
        self.append_roles = append_roles
        self.refuse_aborted = refuse_aborted
        self.instance_id = uuid.uuid4().hex
        self.sessions: dict[str, Session] = {}

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for engine in self.engines.values():
                await engine.close()

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "session_server_instance_id": self.instance_id})

    async def abort(self, request: Request) -> Response:
        return JSONResponse({"aborted": sum(engine.abort() for engine in self.engines.values())})

    async def open(self, request: Request) -> Response:
        body = await _json_object(request)
        policy = body.get("policy", next(iter(self.engines)))
        if policy not in self.engines:
            raise BadRequest(f"no policy {policy!r}; this server has {', '.join(self.engines)}")
        unknown = body.keys() - CONTROL - {"policy"}
        if unknown and self.strict:
            raise BadRequest(f"unknown fields: {', '.join(sorted(unknown))}")
        session = Session(id=uuid.uuid4().hex, policy=policy, append_roles=self.append_roles, strict=self.strict)
        self.sessions[session.id] = session
        return JSONResponse({"session_id": session.id})

    async def read(self, request: Request) -> Response:
        return JSONResponse(self._session(request).as_json())

    async def delete(self, request: Request) -> Response:
        del self.sessions[self._session(request).id]  # an answer that is still under way finds nobody to record it
        return Response(status_code=204)

    async def chat(self, request: Request) -> Response:
        session = self._session(request)
        started = time.time()
        body = await _json_object(request)
        stream = bool(body.get("stream"))
        prepared = session.prepare(body)
        expected = len(session.records)
        answer = await self.engines[session.policy].complete(session.id, prepared)
        if answer.status != 200:
            logger.info("%s turn %d: HTTP %d", session.id[:8], expected + 1, answer.status)
            return JSONResponse(answer.body, status_code=answer.status)
        choice = answer.body["choices"][0]
        if choice["finish_reason"] == "abort" and self.refuse_aborted:
            return JSONResponse({"error": "upstream generation aborted before completion"}, status_code=503)
        session.commit(expected, started, prepared, answer.body)
        logger.info("%s turn %d: %s", session.id[:8], expected + 1, _summary(choice))
        if stream:
            chunk = json.dumps(_as_chunk(answer.body), ensure_ascii=False)
            return Response(f"data: {chunk}\n\ndata: [DONE]\n\n", media_type="text/event-stream")
        return JSONResponse(answer.body)

    def _session(self, request: Request) -> Session:
        session_id = request.path_params["session_id"]
        if session_id not in self.sessions:
            raise SessionNotFound(session_id)
        return self.sessions[session_id]


async def _json_object(request: Request) -> dict[str, Any]:
    raw = await request.body()
    try:
        body = json.loads(raw) if raw else {}
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"invalid JSON body: {error}") from error
    if not isinstance(body, dict):
        raise InternalError("the body is not an object")
    return body


def _as_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    """The whole answer as one streamed chunk: nothing is ever streamed for real."""
    choice = completion["choices"][0]
    message = choice["message"]
    delta = {key: message[key] for key in ("role", "content", "reasoning_content", "tool_calls") if message.get(key)}
    chunk = {key: completion[key] for key in ("id", "created", "model", "usage") if key in completion}
    choices = [{"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}]
    return chunk | {"object": "chat.completion.chunk", "choices": choices}


def _summary(choice: Mapping[str, Any]) -> str:
    calls = [call["function"] for call in choice["message"].get("tool_calls") or ()]
    said = ", ".join(f"{call['name']}({call['arguments']})" for call in calls) or repr(choice["message"]["content"])
    return f"{choice['finish_reason']}: {said if len(said) <= 200 else said[:200] + '...'}"


async def _session_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SessionError)
    return JSONResponse({"error": str(error)}, status_code=error.status)


async def _internal_error(request: Request, error: Exception) -> Response:
    logger.warning("%s %s: %s", request.method, request.url.path, error)
    return PlainTextResponse("Internal Server Error", status_code=500, headers={"connection": "close"})


async def _client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
