"""The live page at /ui, and what it asks for.

The page is one file, with no script, font or style from elsewhere. It asks /ui/state once a second; what that says is
made at most once a second, however many pages look. A bundle may ship `view.html`, a page of its own that draws an
episode: it is shown in a frame that can reach nothing, and is handed the episode by postMessage.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import JSONResponse
from starlette.responses import HTMLResponse, Response

from agent_env.monitor.recent import Recent

__all__ = ["VIEW", "page_router"]

VIEW = "view.html"
"""The bundle's own page for an episode: it listens for a message {"task_id", "events"} and draws it."""

_MOST_SHOWN = 300
"""Live episodes in the list, oldest first: those that are stuck are among them."""
_KEEP_SECONDS = 1.0
_VIEW_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; sandbox allow-scripts"


def page_router(status: Callable[[], dict[str, Any]], recent: Recent, views: Mapping[str, Path]) -> APIRouter:
    """Routes of the page. `status`: what /status says. `views`: a bundle's `view.html` by the bundle's name."""
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    policy = _policy(page)
    router = APIRouter(prefix="/ui", include_in_schema=False)
    made: tuple[float, dict[str, Any]] | None = None

    @router.get("")
    async def show() -> Response:
        return HTMLResponse(page, headers={"content-security-policy": policy, "cache-control": "no-cache"})

    @router.get("/state")
    async def state() -> Response:
        nonlocal made
        now = time.monotonic()
        if made is None or now - made[0] >= _KEEP_SECONDS:
            made = now, _state(status(), recent, views)
        return JSONResponse(made[1])

    @router.get("/episodes/{episode_id}")
    async def episode(episode_id: str) -> Response:
        events = recent.events(episode_id)
        if events is None:
            raise HTTPException(404, "nothing is remembered of that episode")
        return JSONResponse({"episode_id": episode_id, "task_id": events[0]["task_id"], "events": events})

    @router.get("/views/{bundle}")
    async def view(bundle: str) -> Response:
        if bundle not in views:
            raise HTTPException(404, "that bundle has no view")
        return HTMLResponse(
            views[bundle].read_text(encoding="utf-8"), headers={"content-security-policy": _VIEW_POLICY}
        )

    return router


def _state(status: dict[str, Any], recent: Recent, views: Mapping[str, Path]) -> dict[str, Any]:
    oldest = sorted(status["episodes"], key=lambda episode: -episode["phase_age"])
    return {
        **status,
        "episodes": oldest[:_MOST_SHOWN],
        "hidden": max(0, len(oldest) - _MOST_SHOWN),
        "finished": list(recent.finished())[:50],
        "curves": recent.curves(),
        "views": sorted(views),
        "now": time.time(),
    }


def _policy(page: str) -> str:
    """The page's own script by its hash, and nothing else; requests only to where it came from."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{value}'" for value in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; connect-src 'self'; frame-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
