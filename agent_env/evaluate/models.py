"""What an evaluation's rollouts chat with: an OpenAI-compatible endpoint, a session server, or a scripted policy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from agent_env.loopback import serving
from agent_env.training.chat import ChatSession
from agent_env.training.policies import load_policy
from agent_env.training.types import Row

__all__ = ["Endpoint", "Model", "ModelError", "SessionServer", "scripted"]


class ModelError(Exception):
    """The model can't be reached at all; str() is one line that says what to mend."""


class Model(Protocol):
    def chat(self, row: Row) -> AbstractAsyncContextManager[ChatSession]:
        """A chat for one rollout of the row. Raises ModelError."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint: `base_url` as its clients take it, as http://host:8000/v1."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request: temperature, top_p, max_tokens, ..."""

    @asynccontextmanager
    async def chat(self, row: Row) -> AsyncIterator[ChatSession]:
        kwargs = {"model": self.model, **self.sampling}
        yield ChatSession(self.base_url, tools=row.tools, request_kwargs=kwargs, api_key=self.api_key)


@dataclass(frozen=True, slots=True)
class SessionServer:
    """A session server, Miles' or the stand-in's: each rollout has a session of its own."""

    url: str
    policy: str | None = None
    """Which of the stand-in's policies plays."""
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def chat(self, row: Row) -> AsyncIterator[ChatSession]:
        async with httpx.AsyncClient(trust_env=False, timeout=60.0, verify=self.url.startswith("https:")) as client:
            try:
                opened = await client.post(f"{self.url}/sessions", json={"policy": self.policy} if self.policy else {})
                session = f"{self.url}/sessions/{opened.raise_for_status().json()['session_id']}"
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                raise ModelError(
                    f"no session could be opened at {self.url}: {error or type(error).__name__}"
                ) from error
            try:
                yield ChatSession(session, tools=row.tools, request_kwargs=self.sampling)
            finally:
                try:
                    await client.delete(session)
                except httpx.HTTPError:
                    pass  # the episode is through; the session server forgets its sessions when it ends


@asynccontextmanager
async def scripted(name: str, sampling: Mapping[str, Any]) -> AsyncIterator[SessionServer]:
    """A policy by name, or `module:attribute`, behind a session server of its own. Raises ModelError."""
    from agent_env.training.session_server.app import build_session_app
    from agent_env.training.session_server.engines import ScriptedEngine

    try:
        policy = load_policy(name)
    except ValueError as error:
        raise ModelError(str(error)) from error
    async with serving(build_session_app({name: ScriptedEngine(policy)})) as url:
        yield SessionServer(url, name, sampling)
