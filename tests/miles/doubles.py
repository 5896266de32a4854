"""An OpenEnv server of listed tasks, for the row writer: the Task API, and sessions that list tools."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.training.env_server import observation
from tests.training.row import END_TURN, tool


def task(index: int, **changed: Any) -> dict[str, Any]:
    """A descriptor as the Task API gives it."""
    return {
        "id": f"@local/listed/{index}",
        "name": f"task-{index}",
        "index": index,
        "prompt": f"Play {index}.",
        "system_prompt": "Be brief.",
        "agent": "agent",
        "toolset": "one",
        **changed,
    }


class TaskServer:
    """Serves `splits` (name -> descriptors). `toolsets`: the tools of each turn, by toolset."""

    def __init__(
        self,
        splits: dict[str, list[dict[str, Any]]],
        *,
        toolsets: dict[str, list[list[dict[str, Any]]]] | None = None,
        token: str | None = None,
        bundle: str = "f" * 64,
    ) -> None:
        self.splits = splits
        self.toolsets = toolsets or {"one": [[tool("add"), END_TURN]]}
        self.token = token
        self.bundle = bundle
        self.resets: list[dict[str, Any]] = []
        self.pages: list[dict[str, Any]] = []
        self.live = 0
        self.closed = asyncio.Event()
        """Set when a session has ended."""
        self.fail_page_after: int | None = None
        self.on_list: Callable[[], Any] | None = None
        self.url = ""

    def _allowed(self, headers: Any) -> bool:
        return self.token is None or headers.get("authorization") == f"Bearer {self.token}"

    async def environments(self, request: Request) -> Response:
        if not self._allowed(request.headers):
            return JSONResponse({"detail": "no"}, 401)
        return JSONResponse(["listed"])

    async def list_splits(self, request: Request) -> Response:
        return JSONResponse([{"name": name, "type": "validation"} for name in self.splits])

    async def num_tasks(self, request: Request) -> Response:
        return JSONResponse({"num_tasks": len(self.splits[(await request.json())["split"]])})

    async def task_range(self, request: Request) -> Response:
        body = await request.json()
        self.pages.append(body)
        if self.fail_page_after is not None and len(self.pages) > self.fail_page_after:
            return Response(status_code=500)
        return JSONResponse({"tasks": self.splits[body["split"]][body["start"] : body["stop"]]})

    async def session(self, websocket: WebSocket) -> None:
        if not self._allowed(websocket.headers):
            await websocket.close()
            return
        await websocket.accept()
        self.live += 1
        turns: list[list[dict[str, Any]]] = []
        turn = 0
        try:
            while True:
                request = await websocket.receive_json()
                data = request.get("data", {})
                if request["type"] == "reset":
                    self.resets.append(data)
                    turns = self.toolsets[self.splits[data["split"]][data["index"]].get("toolset", "one")]
                    reply = observation(metadata={"turns": len(turns), "bundle": self.bundle})
                elif data["type"] == "list_tools":
                    if self.on_list is not None:
                        await self.on_list()
                    reply = observation({"tools": turns[turn]})
                else:
                    turn += 1
                    reply = observation(
                        {"tool_name": "end_turn", "result": {"prompt": "next"}}, done=turn >= len(turns)
                    )
                await websocket.send_json(reply)
        except WebSocketDisconnect:
            pass
        finally:
            self.live -= 1
            self.closed.set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[TaskServer]:
        app = Starlette(
            routes=[
                Route("/list_environments", self.environments),
                Route("/listed/splits", self.list_splits),
                Route("/listed/num_tasks", self.num_tasks, methods=["POST"]),
                Route("/listed/task_range", self.task_range, methods=["POST"]),
                WebSocketRoute("/ws", self.session),
            ]
        )
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="websockets-sansio"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            while not server.started:
                await asyncio.sleep(0.01)
            yield self
        finally:
            server.should_exit = True
            await serving
