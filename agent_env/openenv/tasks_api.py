"""The Task API: which splits and tasks this server has. Answered from the bundle; deploys nothing.

Route functions are plain ones, so that a listing of thousands of tasks is made off the event loop.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr
from starlette.responses import Response

from agent_env.openenv.catalog import Catalog, Place, describe
from agent_env.openenv.replies import JsonReply

__all__ = ["tasks_router"]

_STRICT = ConfigDict(extra="forbid")
_SPLIT_TYPES = frozenset({"train", "validation", "test"})


class SplitBody(BaseModel):
    model_config = _STRICT
    split: StrictStr


class TaskBody(BaseModel):
    model_config = _STRICT
    split: StrictStr
    index: StrictInt


class TaskRangeBody(BaseModel):
    model_config = _STRICT
    split: StrictStr
    start: StrictInt | None = None
    """As in a Python slice: null or left out is an end, negative counts from behind."""
    stop: StrictInt | None = None


_ABSENT: dict[int | str, dict[str, Any]] = {404: {"description": "Unknown environment"}}
_BAD: dict[int | str, dict[str, Any]] = {**_ABSENT, 400: {"description": "Unknown split, or no such index"}}


def tasks_router(catalog: Catalog) -> APIRouter:
    """Routes over the catalog. The env's name in a path is compared without case."""
    router = APIRouter(default_response_class=JsonReply)

    def check_env(env_name: str) -> None:
        if env_name.casefold() != catalog.name.casefold():
            raise HTTPException(404, f"unknown environment {env_name!r}")

    def indices(env_name: str, split: str) -> range:
        check_env(env_name)
        try:
            return range(len(catalog.tasks(split)))
        except LookupError as error:
            raise HTTPException(400, str(error.args[0])) from None

    def described(split: str, chosen: range) -> list[dict[str, Any]]:
        tasks = catalog.tasks(split)
        return [describe(Place(split, index, tasks[index])) for index in chosen]

    @router.get("/list_environments")
    def list_environments() -> Response:
        """The one env that this server serves."""
        return JsonReply([catalog.name])

    @router.get("/{env_name}/splits", responses=_ABSENT)
    def splits(env_name: str) -> Response:
        """Names of splits; a type other than the name's own is validation."""
        check_env(env_name)
        return JsonReply(
            [{"name": name, "type": name if name in _SPLIT_TYPES else "validation"} for name in catalog.splits]
        )

    @router.post("/{env_name}/num_tasks", responses=_BAD)
    def num_tasks(env_name: str, body: SplitBody) -> Response:
        """How many tasks a split has."""
        return JsonReply({"num_tasks": len(indices(env_name, body.split))})

    @router.post("/{env_name}/tasks", responses=_BAD)
    def tasks(env_name: str, body: SplitBody) -> Response:
        """Every task of a split."""
        listed = described(body.split, indices(env_name, body.split))
        return JsonReply({"tasks": listed, "env_name": catalog.name})

    @router.post("/{env_name}/task", responses=_BAD)
    def task(env_name: str, body: TaskBody) -> Response:
        """One task, by its index from 0."""
        if body.index not in indices(env_name, body.split):
            raise HTTPException(400, "Invalid task index")
        return JsonReply({"task": described(body.split, range(body.index, body.index + 1))[0]})

    @router.post("/{env_name}/task_range", responses=_BAD)
    def task_range(env_name: str, body: TaskRangeBody) -> Response:
        """The tasks of a slice."""
        return JsonReply({"tasks": described(body.split, indices(env_name, body.split)[body.start : body.stop])})

    return router
