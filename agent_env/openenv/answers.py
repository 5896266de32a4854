"""A session's results as observations, failed episodes included: what /ws steps and HTTP steps are answered with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_env.episode.types import EpisodeFailed, ErrorKind, Prompt, Tool, ToolResult
from agent_env.openenv.messages import Observation
from agent_env.openenv.play import Ended, Opened, Progress
from agent_env.openenv.protocol import REASON_NO_EPISODE
from agent_env.openenv.schemas import Action, ListTools, ResetRequest
from agent_env.openenv.session import NoEpisode, Session

__all__ = ["call_value", "reset", "state_of", "step", "tool_list"]


async def reset(session: Session, request: ResetRequest, fingerprint: str) -> Observation:
    """Reset and say how it went. Raises AtCapacity, Closing, SessionClosed."""
    try:
        opened = await session.reset(request)
    except EpisodeFailed as failure:
        return Observation(done=True, metadata=_failed(failure.reason, str(failure), session.progress))
    return Observation(metadata=_opened(opened, fingerprint))


async def step(session: Session, action: Action) -> Observation:
    """Take one action and say how it went. Raises SessionClosed."""
    if isinstance(action, ListTools):
        try:
            listed = {"tools": tool_list(await session.tools(step=True))}
            return Observation(listed, reward=session.step_reward)
        except NoEpisode as missing:
            return Observation(done=True, metadata=_failed(REASON_NO_EPISODE, str(missing), session.progress))
    try:
        result = await session.call(action.tool_name, action.arguments)
    except NoEpisode as missing:
        metadata = _failed(REASON_NO_EPISODE, str(missing), session.progress)
        body = _called(action.tool_name, error=(ErrorKind.EXECUTION, str(missing)))
        return Observation(body, done=True, metadata=metadata)
    except EpisodeFailed as failure:
        metadata = _failed(failure.reason, str(failure), session.progress)
        body = _called(action.tool_name, error=(ErrorKind.TRANSPORT, str(failure)))
        return Observation(body, done=True, metadata=metadata)
    if isinstance(result, ToolResult):
        if result.error is not None:
            failed = _called(action.tool_name, error=(result.error, result.message))
            return Observation(failed, reward=session.step_reward)
        return Observation(_called(action.tool_name, call_value(result)), reward=session.step_reward)
    if isinstance(result, Prompt):
        value = {"prompt": result.prompt, "system_prompt": result.system_prompt}
        called = _called(action.tool_name, value)
        return Observation(called, reward=session.step_reward, metadata={"turn": result.turn})
    return Observation(_called(action.tool_name), reward=result.outcome.reward, done=True, metadata=_ended(result))


def state_of(progress: Progress) -> dict[str, Any]:
    """What a state request is answered with."""
    place = progress.place
    return {
        "episode_id": progress.episode_id,
        "step_count": progress.steps,
        "task_id": place.task.id if place else None,
        "task_name": place.task.name if place else None,
        "split": place.split if place else None,
        "index": place.index if place else None,
        "turn": progress.turn,
        "done": progress.done,
    }


def tool_list(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as OpenEnv lists them."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.input_schema)} for tool in tools
    ]


def call_value(result: ToolResult) -> dict[str, Any]:
    """A tool's value as OpenEnv clients read it: `data` is what their `call_tool` returns."""
    return {
        "content": list(result.content),
        "structured_content": result.structured,
        "meta": None,
        "data": result.text or result.structured or "",
        "is_error": False,
    }


def _called(name: str, value: Any = None, error: tuple[ErrorKind, str] | None = None) -> dict[str, Any]:
    told = None if error is None else {"error_type": error[0].value, "message": error[1]}
    return {"tool_name": name, "result": value, "error": told}


def _opened(opened: Opened, fingerprint: str) -> dict[str, Any]:
    task = opened.place.task
    return {
        "prompt": opened.prompt.prompt,
        "system_prompt": opened.prompt.system_prompt,
        "task": opened.place.summary(),
        "turn": opened.prompt.turn,
        "turns": len(task.turns),
        "replayable": task.replayable,
        "bundle": fingerprint,
        "seconds": {"wait": round(opened.wait, 6), "deploy": round(opened.deploy, 6)},
    }


def _ended(ended: Ended) -> dict[str, Any]:
    return {
        "scores": dict(ended.outcome.scores),
        "task": ended.place.summary(),
        "seconds": {"score": round(ended.score, 6)},
    }


def _failed(reason: str, error: str, progress: Progress) -> Mapping[str, Any]:
    task = progress.place.summary() if progress.place else None
    return {"status": "error", "reason": str(reason), "error": error, "task": task}
