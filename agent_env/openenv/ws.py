"""The WebSocket routes: /ws, which trainers use, and /mcp, which speaks JSON-RPC only."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.websockets import WebSocket

from agent_env.openenv import answers
from agent_env.openenv.admission import AtCapacity, Closing
from agent_env.openenv.frames import FrameSocket
from agent_env.openenv.jsonrpc import JsonRpc
from agent_env.openenv.messages import Unsendable, error_frame, frame, observation_frame, parse
from agent_env.openenv.protocol import CLOSE_RESTART, CLOSE_TRY_AGAIN, Code
from agent_env.openenv.rpc import at_capacity, encode_reply
from agent_env.openenv.schemas import McpFrame, ResetFrame, StateFrame, StepFrame, read_action
from agent_env.openenv.session import Session, SessionClosed
from agent_env.openenv.sessions import Sessions, UnknownSession

__all__ = ["WebSocketRoutes"]

_log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class _Settings:
    """What the query says. Raises ValueError."""

    session_id: str | None
    wait: float | None
    call_timeout: float | None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> _Settings:
        wait, call_timeout = _seconds(query, "wait"), _seconds(query, "call_timeout")
        if call_timeout == 0:
            raise ValueError("call_timeout=0: give the seconds that a tool call may take")
        return cls(query.get("session_id"), None if wait is None else min(wait, MAX_WAIT_SECONDS), call_timeout)


class WebSocketRoutes:
    """The endpoints, over a server's sessions."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._rpc = JsonRpc(sessions)
        self._mcp_rpc = JsonRpc(sessions, autostart=True)

    async def ws(self, websocket: WebSocket) -> None:
        """`/ws[?wait=SECONDS][&call_timeout=SECONDS]`, or `/ws?session_id=ID` to join a session made over HTTP."""
        await websocket.accept()
        socket = FrameSocket(websocket)
        try:
            settings = _Settings.read(websocket.query_params)
        except ValueError as error:
            await self._turn_away(socket, Code.VALIDATION_ERROR, str(error))
            return
        if settings.session_id is not None:
            await self._attached(socket, settings)
            return
        session = self._sessions.open(wait=settings.wait, call_timeout=settings.call_timeout)
        try:
            await socket.run(lambda: self._talk(socket, session))
        finally:
            await self._sessions.end(session)

    async def mcp(self, websocket: WebSocket) -> None:
        """`/mcp`: JSON-RPC requests on a session of the first task, or of those that `session_id` params name."""
        await websocket.accept()
        socket = FrameSocket(websocket)
        session = self._sessions.open()
        try:
            await socket.run(lambda: self._talk_json_rpc(socket, session))
        finally:
            await self._sessions.end(session)

    async def _attached(self, socket: FrameSocket, settings: _Settings) -> None:
        assert settings.session_id is not None
        try:
            session = self._sessions.attach(settings.session_id)
        except UnknownSession as error:
            await self._turn_away(socket, Code.SESSION_ERROR, str(error))
            return
        if settings.call_timeout is not None:
            session.call_timeout = settings.call_timeout
        try:
            await socket.run(lambda: self._talk(socket, session))
        finally:
            await self._sessions.detach(session)

    async def _turn_away(self, socket: FrameSocket, code: str, message: str) -> None:
        async def refuse() -> None:
            await socket.first()
            await socket.refuse(code, message, close=1008)

        await socket.run(refuse)

    async def _talk(self, socket: FrameSocket, session: Session) -> None:
        """Answer frames until the client says close. A session's room is taken at its first frame, so that a refusal
        follows a request, and sockets that say nothing hold nothing."""
        try:
            while True:
                received = await socket.next()
                await session.admit()
                answer = await self._answer(received, session)
                if answer is None:
                    return
                await socket.send(answer)
        except AtCapacity as full:
            counts = {"active_sessions": full.active, "max_sessions": full.limit}
            await socket.refuse(Code.CAPACITY_REACHED, str(full), close=CLOSE_TRY_AGAIN, **counts)
        except (Closing, SessionClosed):
            await socket.close(CLOSE_RESTART, "the server is going away")

    async def _talk_json_rpc(self, socket: FrameSocket, session: Session) -> None:
        try:
            while True:
                received = await socket.next()
                await session.admit()
                await socket.send(await self._mcp_rpc.answer_text(received, session))
        except AtCapacity as full:
            await socket.send(encode_reply(at_capacity(full)))
            await socket.close(CLOSE_TRY_AGAIN, str(full))
        except (Closing, SessionClosed):
            await socket.close(CLOSE_RESTART, "the server is going away")

    async def _answer(self, received: str | bytes, session: Session) -> str | None:
        """The answer to one frame; None for close. Raises AtCapacity, Closing, SessionClosed."""
        if isinstance(received, bytes):
            return error_frame(Code.VALIDATION_ERROR, "a binary frame: send JSON in text frames")
        try:
            message = parse(received)
        except ValueError as error:
            return error_frame(Code.INVALID_JSON, f"Invalid JSON: {error}")
        if not isinstance(message, dict):
            return error_frame(Code.VALIDATION_ERROR, f"a frame holds a JSON object, not {type(message).__name__}")
        try:
            return await self._dispatch(message, session)
        except ValidationError as error:
            return error_frame(Code.VALIDATION_ERROR, "Invalid message", errors=_problems(error))
        except Unsendable as error:
            return error_frame(Code.EXECUTION_ERROR, f"the answer can't be sent: {error}")
        except (AtCapacity, Closing, SessionClosed):
            raise
        except Exception as error:
            _log.exception("a %s frame failed", str(message.get("type"))[:40])
            return error_frame(Code.EXECUTION_ERROR, f"{type(error).__name__}: {error}")

    async def _dispatch(self, message: dict[str, Any], session: Session) -> str | None:
        match message.get("type"):
            case "reset":
                request = ResetFrame.model_validate(message).data
                return observation_frame(await answers.reset(session, request, self._sessions.catalog.fingerprint))
            case "step":
                action = read_action(StepFrame.model_validate(message).data)
                return observation_frame(await answers.step(session, action))
            case "state":
                StateFrame.model_validate(message)
                return frame("state", answers.state_of(await session.state()))
            case "mcp":
                request_data = McpFrame.model_validate(message).data
                return frame("mcp", await self._rpc.answer(request_data, session))
            case "close":
                StateFrame.model_validate(message)
                return None
            case other:
                return error_frame(Code.UNKNOWN_TYPE, f"Unknown message type: {str(other)[:100]}")


def _seconds(query: Mapping[str, str], name: str) -> float | None:
    if name not in query:
        return None
    try:
        seconds = float(query[name])
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{name}={query[name][:40]}: give a number of seconds")
    return seconds


def _problems(error: ValidationError) -> list[dict[str, Any]]:
    """As OpenEnv's servers list them, without echoing what may be megabytes."""
    return [dict(problem) for problem in error.errors(include_context=False, include_input=False)[:20]]
