"""One OpenEnv session: at most one episode at a time, one operation at a time, whoever asks.

A session is driven from its WebSocket and, when it was made over HTTP, from JSON-RPC requests too; all of them share
its lock, its episode and its step counter. Operations may be cancelled at any point, which is what happens when the
client goes away; what they had begun is then torn down, and `close` returns when that is through.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agent_env.episode.types import EpisodeFailed, ErrorKind, Failure, Prompt, Tool, ToolResult
from agent_env.openenv.admission import Admission, Slot
from agent_env.openenv.catalog import Catalog, Place
from agent_env.openenv.play import Activity, Ended, EpisodeMaker, Opened, Phase, Playable, Progress, Tally
from agent_env.openenv.protocol import END_TURN
from agent_env.openenv.schemas import ResetRequest

__all__ = ["NoEpisode", "Session", "SessionClosed"]

_log = logging.getLogger(__name__)


class NoEpisode(Exception):
    """A step before any reset, or after the end of the episode."""


class SessionClosed(Exception):
    """The session was closed while the operation ran or waited."""


class Session:
    """One client's episodes, one after the other.

    With `wait=None` the session holds one slot from `admit` to `close`. With `wait` seconds it queues for a slot at
    every reset, and gives it back as soon as that episode's env is torn down. `call_timeout` is in seconds;
    `step_reward` is what a step that scores nothing is answered with.
    """

    def __init__(
        self,
        *,
        admission: Admission,
        catalog: Catalog,
        make_episode: EpisodeMaker,
        tally: Tally,
        wait: float | None,
        call_timeout: float,
        step_reward: float | None = None,
    ) -> None:
        self.id = str(uuid.uuid4())
        self.call_timeout = call_timeout
        self.step_reward = step_reward
        self.progress = Progress()
        self.activity = Activity()
        self._admission = admission
        self._catalog = catalog
        self._make_episode = make_episode
        self._tally = tally
        self._wait = wait
        self._slot: Slot | None = None
        self._episode: Playable | None = None
        self._teardown: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._running: asyncio.Timeout | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def playing(self) -> bool:
        """Whether it has an episode, or is getting one."""
        return self._episode is not None or self.activity.phase in (Phase.WAITING, Phase.DEPLOYING)

    async def admit(self) -> None:
        """Take this session's room, if it holds its room for life. Raises AtCapacity, Closing, SessionClosed."""
        if self._wait is None and self._slot is None:
            async with self._turn():
                self._now(Phase.WAITING)
                self._slot = self._slot or await self._admission.acquire(0.0)

    async def reset(self, request: ResetRequest) -> Opened:
        """Begin a new episode; one that is running is torn down first.

        Raises EpisodeFailed (UNKNOWN_TASK, DEPLOY_FAILED), AtCapacity, Closing, SessionClosed.
        """
        async with self._turn():
            self._finish("abandoned")
            await self._torn_down()
            self.progress = Progress(episode_id=request.episode_id or uuid.uuid4().hex, done=True)
            place = await self._catalog.choose(request)
            self.progress.place = place
            asked = time.monotonic()
            if self._slot is None:
                self._now(Phase.WAITING)
                self._slot = await self._admission.acquire(self._wait or 0.0)
            waited = time.monotonic() - asked
            self._tally.on_wait(waited)
            return await self._start(place, waited)

    async def _start(self, place: Place, waited: float) -> Opened:
        self._now(Phase.DEPLOYING)
        began = time.monotonic()
        try:
            self._episode = self._make_episode(place, self.progress.episode_id or "")
            prompt = await self._episode.start()
        except EpisodeFailed as failure:
            self._finish(failure.reason)
            raise
        except BaseException:
            self._finish("abandoned")
            raise
        self.progress.turn, self.progress.done = prompt.turn, False
        return Opened(prompt, place, wait=waited, deploy=time.monotonic() - began)

    async def tools(self, *, step: bool) -> list[Tool]:
        """The tools of this turn, end_turn among them. `step`: whether it was asked by a step message, which counts.

        Raises NoEpisode, SessionClosed.
        """
        async with self._turn():
            return list(self._live(step).tools)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult | Prompt | Ended:
        """Call a tool. end_turn gives the next turn's prompt or the end.

        Raises EpisodeFailed (ENV_LOST, UNSCORED; the episode is over then), NoEpisode, SessionClosed.
        """
        async with self._turn():
            episode = self._live(step=True)
            try:
                if name == END_TURN:
                    return await self._end_turn(episode, arguments)
                self._now(Phase.CALLING, name)
                result = await episode.call(name, arguments, self.call_timeout)
                if result.error is ErrorKind.TRANSPORT:
                    raise EpisodeFailed(Failure.ENV_LOST, result.message)
            except EpisodeFailed as failure:
                self._finish(failure.reason)
                raise
            return result

    async def _end_turn(self, episode: Playable, arguments: Mapping[str, Any]) -> ToolResult | Prompt | Ended:
        unknown = [key for key in arguments if key != "response"]
        response = arguments.get("response")
        if unknown or not isinstance(response, str | None):
            found = f"{unknown[0]!r}" if unknown else f"a response of type {type(response).__name__}"
            message = f"end_turn takes one argument, response, a string; found {found[:200]}"
            return ToolResult(error=ErrorKind.INVALID_ARGUMENTS, message=message)
        self._now(Phase.SCORING, END_TURN)
        began = time.monotonic()
        place = self.progress.place
        try:
            ended = await episode.end_turn(response or "")
        except EpisodeFailed:
            raise
        except BaseException:  # cancelled, say: the turn is neither open nor ended, so nothing can follow it
            self._finish("abandoned")
            raise
        if isinstance(ended, Prompt):
            self.progress.turn = ended.turn
            return ended
        assert place is not None
        self._finish("scored")
        return Ended(ended, place, score=time.monotonic() - began)

    async def state(self) -> Progress:
        """Where the episode stands, once what was asked before is answered. Raises SessionClosed."""
        async with self._turn():
            return self.progress

    async def close(self) -> None:
        """End a running operation, tear the episode down, and give the slot back. Idempotent.

        Returns when that is through; a caller that is cancelled stops waiting, not the teardown.
        """
        if self._closing is None:
            if self._slot is not None:
                self._slot.leave()
            self._closing = asyncio.create_task(self._close())
            if self._running is not None:
                self._running.reschedule(asyncio.get_running_loop().time())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        async with self._lock:
            self._now(Phase.CLOSING)
            self._finish("abandoned")
            await self._torn_down()
            if self._slot is not None:
                self._slot.release()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """The session's lock, first come first served; `close` ends the operation that holds it."""
        async with self._lock:
            if self._closing is not None:
                raise SessionClosed("the session is closed")
            try:
                async with asyncio.timeout(None) as self._running:
                    yield
            except TimeoutError:
                if self._running is not None and self._running.expired():
                    raise SessionClosed("the session was closed") from None
                raise
            finally:
                self._running = None
                self._now(Phase.IDLE)

    def _live(self, step: bool) -> Playable:
        if self.progress.episode_id is not None and step:
            self.progress.steps += 1
        if self._episode is None:
            ended = self.progress.episode_id is not None
            raise NoEpisode("the episode has ended: send reset" if ended else "no episode has begun: send reset first")
        return self._episode

    def _finish(self, how: str) -> None:
        """Begin the teardown of the episode, if there is one; a queueing session's slot goes with it."""
        episode, self._episode = self._episode, None
        if episode is None:
            return
        self.progress.done = True
        self._tally.ended[how] += 1
        slot = None
        if self._wait is not None:
            slot, self._slot = self._slot, None
            if slot is not None:
                slot.leave()
        self._teardown = asyncio.create_task(self._tear_down(episode, slot))

    async def _tear_down(self, episode: Playable, slot: Slot | None) -> None:
        try:
            await episode.close()
        except Exception:
            _log.exception("tearing down episode %s failed", self.progress.episode_id)
        finally:
            if slot is not None:
                slot.release()

    async def _torn_down(self) -> None:
        if self._teardown is not None:
            await asyncio.shield(self._teardown)
            self._teardown = None

    def _now(self, phase: Phase, tool: str | None = None) -> None:
        self.activity = Activity(phase, tool)
