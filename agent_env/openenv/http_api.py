"""The HTTP routes of OpenEnv beside the Task API: health, descriptions, stateless reset and step, and JSON-RPC.

Whatever can be said without an env is answered from the bundle; nothing is deployed for a GET.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from starlette.responses import Response

from agent_env import __version__
from agent_env.openenv import answers
from agent_env.openenv.admission import AtCapacity, Closing
from agent_env.openenv.jsonrpc import JsonRpc
from agent_env.openenv.messages import Observation, observation_body
from agent_env.openenv.play import Progress
from agent_env.openenv.replies import JsonReply, while_connected
from agent_env.openenv.schemas import (
    ACTION_SCHEMA,
    OBSERVATION_SCHEMA,
    RESET_OBSERVATION_SCHEMA,
    STATE_SCHEMA,
    ResetRequest,
    read_action,
)
from agent_env.openenv.session import Session, SessionClosed
from agent_env.openenv.sessions import Sessions

__all__ = ["http_router"]


_log = logging.getLogger(__name__)


class ResetBody(ResetRequest):
    model_config = ConfigDict(extra="allow")
    seed: Annotated[StrictInt, Field(ge=0)] | None = None


class StepBody(BaseModel):
    model_config = ConfigDict(extra="allow")
    action: dict[str, Any] = Field(json_schema_extra=ACTION_SCHEMA)
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    request_id: Annotated[StrictStr, Field(max_length=255)] | None = None


_FULL: dict[int | str, dict[str, Any]] = {503: {"description": "No room for another env, or the server is going away"}}


UNHEALTHY = "envs can't be deployed: a disk of this host is full; GET /status says more"
"""To whoever asks, so without names and paths."""


def http_router(
    sessions: Sessions, status: Callable[[bool], dict[str, Any]], problem: Callable[[], str | None]
) -> APIRouter:
    """Routes over a server's sessions. `status` gives what /status says, `problem` what keeps envs from being
    deployed."""
    router = APIRouter(default_response_class=JsonReply)
    rpc = JsonRpc(sessions)
    catalog = sessions.catalog

    @router.get("/health", responses={503: {"description": "No env can be deployed here at the moment"}})
    async def health(alive: bool = False) -> Response:
        """Whether envs can be deployed, as far as is known; `alive=true`: whether the server answers at all, which a
        restart may mend, unlike a full disk. The one route that needs no token."""
        if problem() is None or alive:
            return JsonReply({"status": "healthy"})
        return JsonReply({"status": "unhealthy", "reason": UNHEALTHY}, 503)

    @router.get("/metadata")
    async def metadata() -> Response:
        """What is served here."""
        return JsonReply({"name": catalog.name, "description": catalog.description, "version": __version__})

    @router.get("/schema")
    async def schema() -> Response:
        """JSON Schemas of actions, observations and states."""
        return JsonReply(
            {
                "action": ACTION_SCHEMA,
                "observation": OBSERVATION_SCHEMA,
                "state": STATE_SCHEMA,
                "reset_observation": RESET_OBSERVATION_SCHEMA,
            }
        )

    @router.get("/status")
    async def server_status(episodes: bool = True) -> Response:
        """Capacity, queue, and every episode's task, age and phase; `episodes=false` leaves those out (null)."""
        return JsonReply(status(episodes))

    @router.get("/state")
    async def state() -> Response:
        """The state of a fresh session: HTTP requests share none. A session's own is asked for over /ws."""
        return JsonReply(answers.state_of(Progress()))

    @router.post("/reset", responses=_FULL)
    async def reset(request: Request, body: ResetBody | None = None) -> Response:
        """Deploy a task's envs and take them down again: OpenEnv's stateless reset. Episodes are played over /ws."""

        async def play(session: Session) -> Observation:
            return await answers.reset(session, body or ResetBody(), catalog.fingerprint)

        return JsonReply(observation_body(await while_connected(request, _once(sessions, play))))

    @router.post("/step", responses=_FULL)
    async def step(request: Request, body: StepBody) -> Response:
        """Take one action in a fresh episode of the first task: OpenEnv's stateless step."""
        try:
            action = read_action(body.action)
        except ValidationError as error:
            problems = error.errors(include_context=False, include_input=False, include_url=False)
            return JsonReply({"detail": [{**one, "loc": ["body", "action", *one["loc"]]} for one in problems]}, 422)

        async def play(session: Session) -> Observation:
            opened = await answers.reset(session, ResetRequest(), catalog.fingerprint)
            return opened if opened.done else await answers.step(session, action)

        return JsonReply(observation_body(await while_connected(request, _once(sessions, play))))

    @router.post("/mcp")
    async def mcp(request: Request) -> Response:
        """OpenEnv's JSON-RPC: openenv/session/create and close, tools/list, tools/call. Always 200."""
        text = await while_connected(request, rpc.answer_text(await request.body()))
        return Response(text, media_type="application/json")

    return router


async def _once(sessions: Sessions, play: Callable[[Session], Awaitable[Observation]]) -> Observation:
    session = sessions.open()
    try:
        await session.admit()
        return await play(session)
    except (AtCapacity, Closing, SessionClosed):
        raise
    except Exception as error:  # answered here, so that the connection goes on
        _log.exception("a stateless request failed")
        raise HTTPException(500, f"{type(error).__name__}: {error}") from error
    finally:
        await sessions.end(session)
