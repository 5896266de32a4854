"""Checks of a server from here: reachable, token, clock, bundle, capacity; and one row played end to end."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from agent_env.doctor.finding import Finding, fail, ok, warn
from agent_env.openenv.client import OpenEnvError, Session, http_url

__all__ = ["check_server"]

_TIMEOUT = 10.0
_SLOW_DEPLOY = 5.0
_MAX_SKEW = 60.0


async def check_server(
    url: str, token: str | None, row: Mapping[str, Any] | None, rollouts: int
) -> AsyncIterator[Finding]:
    """The server at `url`; with `row` (one of a rows file), also whether it serves the row's bundle, and plays it.

    Stops at the first failure that makes the rest meaningless.
    """
    try:
        base = http_url(url)
        async with httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT) as client:
            began = time.time()
            health = await client.get(f"{base}/health")
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            status = await client.get(f"{base}/status", headers=headers)
    except (OpenEnvError, httpx.InvalidURL) as error:
        yield fail(f"{url} is not an address", str(error))
        return
    except httpx.HTTPError as error:
        yield fail(
            f"{url} can't be reached from here ({type(error).__name__}: {error})",
            "is the server running, on an address that this host reaches (not 127.0.0.1 of another)?",
        )
        return
    if health.status_code == 503 and "unhealthy" in health.text:
        yield fail(
            f"{base} is unhealthy: {_problem(status) or health.text[:500]}", "it tries by itself until it is well"
        )
        return
    if health.status_code != 200:
        yield fail(f"{base}/health answers HTTP {health.status_code}", "is an OpenEnv server there, or a proxy's page?")
        return
    yield ok(f"{base} is healthy and answers in {health.elapsed.total_seconds() * 1000:.0f} ms")
    for finding in _clock(health.headers.get("Date"), began):
        yield finding
    if status.status_code == 401:
        yield fail("the server refuses the token" if token else "the server wants a token", "--token-var VAR")
        return
    try:
        found = status.json()
        capacity, bundle, splits = int(found["capacity"]), str(found["bundle"]), dict(found["splits"])
    except (ValueError, KeyError, TypeError):
        yield fail(f"{base}/status says nothing that is known", "is this a server of agent-env?")
        return
    yield ok("the token is accepted" if token else "the server needs no token")
    tier = (found.get("tier") or {}).get("name", "unknown")
    yield ok(f"it serves {', '.join(f'{name} ({count})' for name, count in splits.items())}; sandbox tier {tier}")
    if capacity < rollouts:
        yield warn(
            f"{rollouts} rollouts at once share {capacity} envs", f"the others wait: max_concurrent_envs={rollouts}"
        )
    else:
        yield ok(f"{capacity} envs at once suffice for {rollouts} rollouts")
    if row is not None:
        written = row["metadata"]["server"].get("bundle")
        if written and written != bundle:
            yield fail(f"the rows are of bundle {written[:12]}, the server serves {bundle[:12]}", "write the rows anew")
            return
        yield ok("the rows are of the bundle that is served")
        yield await _play(url, token, row)


def _problem(status: httpx.Response) -> str | None:
    """What /status says of it, to who has the token."""
    try:
        found = status.json()["problem"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _clock(date: str | None, now: float) -> list[Finding]:
    try:
        skew = abs(parsedate_to_datetime(date or "").timestamp() - now)
    except ValueError:
        return []
    if skew <= _MAX_SKEW:
        return [ok(f"the clocks agree within {_MAX_SKEW:.0f} s")]
    return [warn(f"the server's clock is {skew:.0f} s off this one", "logs and traces won't line up: run NTP on both")]


async def _play(url: str, token: str | None, row: Mapping[str, Any]) -> Finding:
    """The row's episode, its turns ended at once, as a policy that does nothing would."""
    metadata = row["metadata"]
    session: Session | None = None
    began = time.monotonic()
    try:
        session = await Session.open(url, timeout=_TIMEOUT, wait=60.0, call_timeout=60.0, token=token)
        opened = await session.reset(timeout=120.0, split=metadata["split"], index=metadata["index"])
        deployed = time.monotonic() - began
        if opened.done:
            return fail(f"the episode did not begin: {opened.metadata.get('error')}", "see the server's log")
        observation = opened
        for _ in range(100):
            observation = await session.call("end_turn", {"response": ""}, timeout=120.0)
            if observation.done:
                break
        if observation.reward is None:
            return fail(f"the episode ended unscored: {observation.metadata.get('error')}", "see the server's log")
        played = f"a row plays: deployed in {deployed:.2f} s, scored {observation.reward:g} for doing nothing"
        return ok(played) if deployed < _SLOW_DEPLOY else warn(played, "a deploy that slow is felt: see warm=")
    except (OpenEnvError, TimeoutError) as error:
        return fail(f"a row could not be played: {error or type(error).__name__}", "see the server's log")
    finally:
        if session is not None:
            await session.close()
