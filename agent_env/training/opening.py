"""Opening an episode: finding a server, waiting for room, deploying; one budget of seconds over all of it.

A try that fails for a reason that may pass (no connection, no room, a failed deploy) is repeated, since the model was
shown nothing yet; the wait between tries doubles up to a cap and is half random, so that waiters don't come back to a
restarted server all at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent_env.openenv.client import (
    ConnectionLost,
    Observation,
    OpenEnvError,
    ProtocolError,
    Refused,
    ServerError,
    Session,
    Unauthorized,
    Unreachable,
)
from agent_env.openenv.protocol import REASON_UNKNOWN_TASK, Code
from agent_env.training.backoff import delays
from agent_env.training.balance import balancer
from agent_env.training.notices import Notices
from agent_env.training.types import EndReason, InvalidRow, RolloutFailed, Row

__all__ = ["CONNECT_TIMEOUT", "Opened", "open_episode"]

CONNECT_TIMEOUT = 60.0
"""Seconds for one try to connect; further tries follow within reset_timeout."""
STRANGE_FOR = 30.0
"""Seconds that answers of what is no OpenEnv server are put up with: a proxy gives such while it has no server to pass
on to (404 from Ray Serve and from ingress controllers)."""
FIRST_DELAY, MAX_DELAY = 0.5, 20.0
FIRST_TOLD, TOLD_EVERY = 5.0, 30.0
"""Seconds of waiting after which a line is logged, and between two lines on one server."""
LEAST_TRY = 0.05
"""Seconds that must be left for another try."""

logger = logging.getLogger("agent_env.training")
_notices = Notices(logger, every=TOLD_EVERY)
_waiting: Counter[str] = Counter()
"""Rollouts of this process that wait for a server, by its URL."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session whose episode has begun; the caller closes it."""

    session: Session
    observation: Observation
    """What reset answered."""
    wait: float
    """Seconds until the deploy began: unreachable servers, no room, earlier tries."""
    deploy: float
    """Seconds that the deploy took."""


async def open_episode(row: Row, *, token: str | None, episode_id: str, timeout: float) -> Opened:
    """Begin the row's episode on one of its servers within `timeout` seconds.

    Raises RolloutFailed (DEPLOY_FAILED) and InvalidRow.
    """
    began = time.monotonic()
    deadline = began + timeout
    trouble = "no try was made"
    strange_since: float | None = None
    pause = delays(FIRST_DELAY, MAX_DELAY)
    while True:
        # Equal servers: a dead or full one is passed over for the next, and at the last one it is queued for room.
        urls = await balancer().order(row.server.urls, token)
        for url in urls:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            last = url == urls[-1]
            try:
                opened = await _try(row, url, token, episode_id, left, wait=left if last else 0.0)
            except _TryAgain as again:
                trouble = str(again)
                now = time.monotonic()
                strange_since = (strange_since or now) if again.strange else None
                if strange_since is not None and now - strange_since >= STRANGE_FOR:
                    raise RolloutFailed(EndReason.DEPLOY_FAILED, trouble) from again
                continue
            deploy = _seconds(opened[1], "deploy", 0.0)
            return Opened(*opened, wait=max(0.0, time.monotonic() - began - deploy), deploy=deploy)
        left = deadline - time.monotonic()
        if left < LEAST_TRY:
            message = f"no env within reset_timeout, {timeout:g} s; the last try: {trouble}"
            raise RolloutFailed(EndReason.DEPLOY_FAILED, message)
        with _shown_waiting(row.server.urls, trouble, timeout - left, timeout):
            await asyncio.sleep(min(next(pause), left / 2))  # half: so that a last try still has its time


class _TryAgain(Exception):
    """This try failed for a reason that may pass. `strange`: what answered is no OpenEnv server, at the moment."""

    def __init__(self, message: str, *, strange: bool = False) -> None:
        self.strange = strange
        super().__init__(message)


async def _try(
    row: Row, url: str, token: str | None, episode_id: str, left: float, wait: float
) -> tuple[Session, Observation]:
    """One try at one server, in at most `left` seconds, of which `wait` may pass in the server's queue."""
    session: Session | None = None
    kept = False
    try:
        async with asyncio.timeout(left):
            session = await Session.open(
                url,
                timeout=min(left, CONNECT_TIMEOUT),
                wait=wait,
                call_timeout=row.server.call_timeout,
                token=token,
            )
            with _shown_waiting((url,), "waiting for room and the deploy", 0.0, left):
                observation = await session.reset(timeout=left, split=row.split, index=row.index, episode_id=episode_id)
        _check(row, url, observation)
        kept = True
        return session, observation
    except Unauthorized as error:
        held = f"; its token is taken from {row.server.token_var}" if row.server.token_var else "; the row names none"
        raise RolloutFailed(EndReason.DEPLOY_FAILED, f"{error}{held} (--token-var)") from error
    except ProtocolError as error:
        raise _TryAgain(str(error), strange=True) from error
    except ServerError as error:
        if error.code in (Code.VALIDATION_ERROR, Code.UNKNOWN_TYPE, Code.INVALID_JSON):
            raise RolloutFailed(EndReason.DEPLOY_FAILED, f"{url} refused the reset: {error}") from error
        raise _TryAgain(f"{url}: {error}") from error
    except TimeoutError as error:
        raise _TryAgain(f"{url} gave no room, or its deploy took too long") from error
    except (Unreachable, Refused, ConnectionLost) as error:
        raise _TryAgain(str(error) if isinstance(error, Unreachable) else f"{url}: {error}") from error
    except OpenEnvError as error:
        raise RolloutFailed(EndReason.DEPLOY_FAILED, f"{url}: {error}") from error
    finally:
        if session is not None and not kept:
            await session.close()


def _check(row: Row, url: str, observation: Observation) -> None:
    """Whether reset began the row's episode. Raises _TryAgain or InvalidRow."""
    metadata = observation.metadata
    if observation.done or metadata.get("status") == "error":
        error = str(metadata.get("error") or "reset answered that the episode is over")
        if metadata.get("reason") == REASON_UNKNOWN_TASK:
            raise InvalidRow(f"{url} doesn't serve the row's task: {error}; write the rows anew, from this server")
        raise _TryAgain(f"{url}: {error}")
    served = metadata.get("bundle")
    if row.server.bundle and isinstance(served, str) and served and served != row.server.bundle:
        raise InvalidRow(
            f"{url} serves another bundle, or another version of it, than the rows were written from ({served[:12]} "
            f"instead of {row.server.bundle[:12]}): write the rows anew"
        )


def _seconds(observation: Observation, phase: str, default: float) -> float:
    seconds = observation.metadata.get("seconds")
    value = seconds.get(phase) if isinstance(seconds, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else default


@contextmanager
def _shown_waiting(urls: tuple[str, ...], why: str, waited: float, budget: float) -> Iterator[None]:
    """Say, rarely and for all rollouts of the process together, that they wait and for what."""
    where = ", ".join(urls)
    began = time.monotonic()
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def say() -> None:
        nonlocal timer
        passed = waited + time.monotonic() - began
        text = f"{_waiting[where]} rollouts wait for {where}: {why} (this one {passed:.0f} of {budget:.0f} s)"
        _notices.say(("waiting", where), logging.WARNING, text)
        timer = loop.call_later(TOLD_EVERY, say)

    _waiting[where] += 1
    timer = loop.call_later(max(0.0, FIRST_TOLD - waited), say)
    try:
        yield
    finally:
        timer.cancel()
        _waiting[where] -= 1
        if not _waiting[where]:
            del _waiting[where]
