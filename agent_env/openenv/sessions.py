"""All sessions of a server: those that live on their WebSocket, and those made over HTTP.

A session made over HTTP outlives a request. A WebSocket may attach to it, one at a time. While none is attached and
nothing runs, its time to live counts down, so that a client that never comes back doesn't keep its room.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_env.openenv.admission import Admission
from agent_env.openenv.catalog import Catalog
from agent_env.openenv.play import EpisodeMaker, Tally
from agent_env.openenv.session import Session

__all__ = ["Sessions", "UnknownSession"]

_log = logging.getLogger(__name__)


class UnknownSession(Exception):
    """No such session, or it can't be had: str() says which."""


@dataclass(slots=True)
class _Detachable:
    session: Session
    users: int = 0
    """Requests under way, and the attached WebSocket."""
    attached: bool = False
    closing: bool = False
    """Closed while attached: ends when the WebSocket goes."""
    expiry: asyncio.TimerHandle | None = None


class Sessions:
    """Opens, finds and ends sessions. `session_timeout` (seconds) is the time to live of detached, idle sessions."""

    def __init__(
        self,
        *,
        admission: Admission,
        catalog: Catalog,
        make_episode: EpisodeMaker,
        call_timeout: float,
        session_timeout: float,
        tally: Tally,
        step_reward: float | None = None,
    ) -> None:
        self.admission = admission
        self.catalog = catalog
        self.call_timeout = call_timeout
        self.tally = tally
        self.live: dict[str, Session] = {}
        self._make_episode = make_episode
        self._session_timeout = session_timeout
        self._step_reward = step_reward
        self._detachable: dict[str, _Detachable] = {}
        self._expiring: set[asyncio.Task[None]] = set()

    def open(self, *, wait: float | None = None, call_timeout: float | None = None) -> Session:
        """A session that its opener ends with `end`."""
        session = Session(
            admission=self.admission,
            catalog=self.catalog,
            make_episode=self._make_episode,
            tally=self.tally,
            wait=wait,
            call_timeout=call_timeout or self.call_timeout,
            step_reward=self._step_reward,
        )
        self.live[session.id] = session
        return session

    async def end(self, session: Session) -> None:
        """Close a session; returns when its env is gone."""
        try:
            await session.close()
        finally:
            self.live.pop(session.id, None)

    async def create(self) -> Session:
        """A session made over HTTP, with its room. Raises AtCapacity, Closing."""
        session = self.open()
        try:
            await session.admit()
        except BaseException:
            await self.end(session)
            raise
        held = self._detachable[session.id] = _Detachable(session)
        self._await_expiry(held)
        return session

    @asynccontextmanager
    async def using(self, session_id: str) -> AsyncIterator[Session]:
        """A session made over HTTP, for one request. Raises UnknownSession."""
        held = self._find(session_id)
        session = self._hold(held)
        try:
            yield session
        finally:
            self._let_go(held)

    def attach(self, session_id: str) -> Session:
        """Join a WebSocket to a session made over HTTP, until `detach`. Raises UnknownSession."""
        held = self._find(session_id)
        if held.attached:
            raise UnknownSession(f"session {session_id} has a WebSocket attached already")
        held.attached = True
        return self._hold(held)

    async def detach(self, session: Session) -> None:
        """The attached WebSocket is gone; a session whose close was asked for in the meantime ends now."""
        held = self._detachable.get(session.id)
        if held is None:
            return
        held.attached = False
        if held.closing:
            await self._drop(held)
        else:
            self._let_go(held)

    async def close(self, session_id: str) -> bool:
        """End a session made over HTTP: True when it is gone, False when that awaits its WebSocket's end.

        Raises UnknownSession.
        """
        held = self._find(session_id)
        if held.attached:
            held.closing = True
            return False
        await self._drop(held)
        return True

    async def shut_down(self, timeout: float) -> int:
        """Admit nobody, end every session in parallel; returns how many weren't through within `timeout` seconds."""
        self.admission.close()
        for held in self._detachable.values():
            if held.expiry is not None:
                held.expiry.cancel()
        ending = [asyncio.ensure_future(self.end(session)) for session in list(self.live.values())]
        if not ending:
            return 0
        _, pending = await asyncio.wait(ending, timeout=timeout)
        return len(pending)

    def _find(self, session_id: str) -> _Detachable:
        held = self._detachable.get(session_id)
        if held is None or held.closing:
            raise UnknownSession(f"Unknown session_id: {session_id[:100]}")
        return held

    def _hold(self, held: _Detachable) -> Session:
        held.users += 1
        if held.expiry is not None:
            held.expiry.cancel()
            held.expiry = None
        return held.session

    def _let_go(self, held: _Detachable) -> None:
        held.users -= 1
        if held.users == 0 and held.session.id in self._detachable:
            self._await_expiry(held)

    def _await_expiry(self, held: _Detachable) -> None:
        held.expiry = asyncio.get_running_loop().call_later(self._session_timeout, self._expire, held)

    def _expire(self, held: _Detachable) -> None:
        _log.info("session %s was left alone for %g s: ended", held.session.id, self._session_timeout)
        del self._detachable[held.session.id]  # at once: nobody may attach to it any more
        task = asyncio.ensure_future(self.end(held.session))
        self._expiring.add(task)
        task.add_done_callback(self._expiring.discard)

    async def _drop(self, held: _Detachable) -> None:
        self._detachable.pop(held.session.id, None)
        if held.expiry is not None:
            held.expiry.cancel()
        await self.end(held.session)
