"""`build_app`: a bundle becomes an OpenEnv server, as an app that `uvicorn.run` serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response

from agent_env import __version__
from agent_env.bundle import EnvSpec, Served, check_reward, resolve_bundles
from agent_env.bundle.resolve import Reward, Source
from agent_env.episode import Episode, Event, Listener
from agent_env.monitor.episode_log import EpisodeLog
from agent_env.monitor.metrics import Metrics
from agent_env.monitor.page import VIEW, page_router
from agent_env.monitor.recent import Recent
from agent_env.monitor.traces import TraceWriter
from agent_env.openenv.admission import Admission, AtCapacity, Closing
from agent_env.openenv.auth import Guard, check_token
from agent_env.openenv.catalog import Catalog, Place
from agent_env.openenv.hostlimits import check_descriptors, raise_descriptors, warn_of_workers
from agent_env.openenv.http_api import http_router
from agent_env.openenv.mcp_endpoint import mcp_router
from agent_env.openenv.play import EpisodeMaker, Tally
from agent_env.openenv.replies import BodyLimit, ClientGone, JsonReply
from agent_env.openenv.session import SessionClosed
from agent_env.openenv.sessions import Sessions
from agent_env.openenv.shutdown import on_stop_signal
from agent_env.openenv.status import status
from agent_env.openenv.tasks_api import tasks_router
from agent_env.openenv.ws import WebSocketRoutes
from agent_env.sandbox.choose import make_sandbox
from agent_env.sandbox.interface import DeployFailed, Limits, Sandbox, SandboxError
from agent_env.sandbox.pool import WarmPool
from agent_env.sandbox.watched import Watched

__all__ = ["assemble", "build_app"]

_log = logging.getLogger(__name__)


def build_app(
    bundle: Source,
    *,
    max_concurrent_envs: int = 8,
    token: str | None = None,
    reward: Reward | None = None,
    sandbox: str | Sandbox | None = None,
    limits: Limits | None = None,
    per_env_limits: Mapping[str, Limits] | None = None,
    warm: int | Mapping[str, int] | None = None,
    call_timeout: float = 600.0,
    verify_timeout: float = 60.0,
    session_timeout: float = 600.0,
    shutdown_timeout: float = 20.0,
    step_reward: float | None = None,
    traces: Path | str | None = None,
    listeners: Sequence[Listener] = (),
) -> FastAPI:
    """An OpenEnv server of a bundle, as a FastAPI app: `uvicorn.run(build_app("gridsim-v1"))`. Times are in seconds.

    - `bundle`: a folder, an installed bundle's name, `hf://ORG/DATASET/PATH[@REVISION]`, or a mapping of split to any
      of these.
    - `max_concurrent_envs`: how many episodes may have envs at once. Sessions opened with `?wait=SECONDS` queue at the
      limit; others are refused with CAPACITY_REACHED.
    - `token`: what every request and WebSocket but `GET /health` must carry, as `Authorization: Bearer TOKEN` or as the
      password of Basic credentials. None: anyone who reaches the server deploys and drives its envs.
    - `reward`: the step id whose score is the reward, or a function of `{step id: score}`; needed where a task gives
      several scores.
    - `sandbox`, `limits`, `per_env_limits`, `warm`: where envs run and what they may use; see
      `agent_env.sandbox.choose.make_sandbox`.
    - `call_timeout`: for a tool call, where the session doesn't say (`?call_timeout=SECONDS`).
    - `verify_timeout`: for each verifier.
    - `step_reward`: the reward of a step that scores nothing. None (null on the wire) can't be mistaken for a score of
      an episode that was left; OpenEnv's level-two graders want a number in every step: give them 0.0.
    - `session_timeout`: how long a session made over HTTP lives while nobody uses it. A session on a WebSocket lives as
      long as the connection: silence is no reason to end it.
    - `shutdown_timeout`: for tearing every episode down at the end, and again for the sandbox.
    - `traces`: a folder that gets a JSONL file of every episode's events.
    - `listeners`: called with every Event of every episode, on the event loop.

    Run one process a host (not `--workers`): limits and queue are a process's own.

    Raises BundleError for a bundle that can't be served, SandboxUnavailable, and ValueError for a bad setting.
    """
    served = resolve_bundles(bundle)
    check_reward(served, reward)
    envs = list(_envs(served))
    chosen = make_sandbox(
        sandbox,
        envs=envs,
        limits=limits,
        per_env_limits=per_env_limits,
        warm=warm,
        max_live=max_concurrent_envs,
    )
    watched = Watched(chosen)

    admission = Admission(max_concurrent_envs)
    metrics = Metrics(lambda: _gauges(admission, chosen), lambda: chosen.tier.name)
    writer = TraceWriter(Path(traces)) if traces is not None else None
    recent = Recent()
    hearing = (metrics, recent, EpisodeLog(), *((writer,) if writer else ()), *listeners)

    def tell(event: Event) -> None:
        for listener in hearing:
            try:
                listener(event)
            except Exception:  # an episode must not fail for who looks on
                _log.exception("a listener failed on %s of episode %s", event.kind, event.episode_id)

    def make_episode(place: Place, episode_id: str) -> Episode:
        return Episode(
            place.task,
            served.bundle_of[place.split],
            watched,
            episode_id=episode_id,
            listener=tell,
            verify_timeout=verify_timeout,
            reward=reward or place.task.reward_step,
        )

    catalog = Catalog(
        name=served.name,
        description=served.description or f"The tasks of {served.name}.",
        fingerprint=served.fingerprint,
        splits={name: split.tasks for name, split in served.splits.items()},
    )
    app = assemble(
        catalog,
        make_episode,
        watched,
        admission,
        envs=envs,
        token=token,
        tally=Tally(on_wait=metrics.waited),
        call_timeout=call_timeout,
        session_timeout=session_timeout,
        shutdown_timeout=shutdown_timeout,
        step_reward=step_reward,
        at_end=writer.close if writer else None,
    )

    @app.get("/metrics", response_class=PlainTextResponse)
    async def prometheus() -> Response:
        """Metrics in Prometheus' text format."""
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    views = {one.name: one.folder / VIEW for one in served.bundles if (one.folder / VIEW).is_file()}
    app.include_router(page_router(app.state.status, recent, views))
    return app


def _gauges(admission: Admission, sandbox: Sandbox) -> dict[str, float]:
    gauges: dict[str, float] = {"capacity": admission.limit, "live": admission.live, "waiting": admission.waiting}
    if isinstance(sandbox, WarmPool):
        gauges["warm"] = sum(sandbox.warm.values())
    return gauges


def _envs(served: Served) -> Iterable[EnvSpec]:
    """Each env that the bundles hold, once."""
    return {spec.digest: spec for bundle in served.bundles for spec in bundle.envs.values()}.values()


def assemble(
    catalog: Catalog,
    make_episode: EpisodeMaker,
    sandbox: Sandbox,
    admission: Admission,
    *,
    envs: Iterable[EnvSpec] = (),
    token: str | None = None,
    tally: Tally | None = None,
    call_timeout: float = 600.0,
    session_timeout: float = 600.0,
    shutdown_timeout: float = 20.0,
    step_reward: float | None = None,
    at_end: Callable[[], None] | None = None,
) -> FastAPI:
    """The app, from its parts: what `build_app` makes of a bundle. `app.state.status()` is what /status says."""
    if token is not None:
        check_token(token)
    check_descriptors(admission.limit)
    sessions = Sessions(
        admission=admission,
        catalog=catalog,
        make_episode=make_episode,
        call_timeout=call_timeout,
        session_timeout=session_timeout,
        tally=tally or Tally(),
        step_reward=step_reward,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        raise_descriptors()
        warn_of_workers(admission.limit)
        try:
            await sandbox.start()
        except SandboxError as error:
            _log.error("envs can't run here: %s", error)
            raise
        _log.info("%s: sandbox %s, room for %d envs", catalog.name, sandbox.tier.name, admission.limit)
        preparing = asyncio.create_task(_prepare(sandbox, envs))
        stopping: list[asyncio.Task[int]] = []

        def stop() -> None:
            if not stopping:
                stopping.append(asyncio.create_task(sessions.shut_down(shutdown_timeout)))

        try:
            with on_stop_signal(stop, timeout=shutdown_timeout):
                yield
        finally:
            preparing.cancel()
            stop()
            left = await stopping[0]
            if left:
                _log.error("%d sessions were not through after %g s", left, shutdown_timeout)
            await _close(sandbox, shutdown_timeout)
            if at_end is not None:
                at_end()

    app = FastAPI(
        title=f"agent_env: {catalog.name}",
        version=f"1.0.0+agent-env.{__version__}",
        description=catalog.description,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        middleware=[Middleware(Guard, token=token), Middleware(BodyLimit)],
        exception_handlers=_HANDLERS,
        responses=_RESPONSES,
    )
    routes = WebSocketRoutes(sessions)
    app.add_api_websocket_route("/ws", routes.ws)
    app.add_api_websocket_route("/mcp", routes.mcp)
    app.state.status = lambda episodes=True: status(sessions, sandbox, episodes=episodes)
    app.include_router(http_router(sessions, app.state.status, lambda: sandbox.problem))
    app.include_router(tasks_router(catalog))
    app.include_router(mcp_router(sessions))
    return app


async def _prepare(sandbox: Sandbox, envs: Iterable[EnvSpec]) -> None:
    """Make envs ready before the first reset. One that can't be made ready fails its deploys, which say why."""
    for env in envs:
        try:
            await sandbox.prepare(env)
        except DeployFailed as error:
            _log.error("env %s can't be made ready: %s", env.name, error)


async def _close(sandbox: Sandbox, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await sandbox.close()
    except TimeoutError:
        _log.error("the sandbox was not closed after %g s", timeout)


async def _no_room(request: Request, error: Exception) -> Response:
    return JsonReply({"detail": str(error)}, 503, headers={"retry-after": "1"})


async def _client_gone(request: Request, error: Exception) -> Response:
    return JsonReply({"detail": "the client left"}, 499)


async def _invalid(request: Request, error: Exception) -> Response:
    """As FastAPI's own, but without echoing the input, which may be what JSON can't say."""
    assert isinstance(error, RequestValidationError)
    kept = ("type", "loc", "msg")
    return JsonReply({"detail": [{key: problem[key] for key in kept} for problem in error.errors()]}, 422)


_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"description": "Not HTTP or JSON as it should be; the detail says what"},
    401: {"description": "The server has a token, and the request doesn't carry it"},
    403: {"description": "A browser's request from a page of another origin"},
    408: {"description": "The body wasn't there in time"},
    413: {"description": "The body is over the limit of messages, 16 MiB"},
}

_HANDLERS: dict[int | type[Exception], Callable[..., Any]] = {
    AtCapacity: _no_room,
    Closing: _no_room,
    SessionClosed: _no_room,
    ClientGone: _client_gone,
    RequestValidationError: _invalid,
}
