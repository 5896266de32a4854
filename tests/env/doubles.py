"""The one env that this folder's tests serve; as a script it is a server.py."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any

from agent_env.env import Env, Field, ToolError, extension, serve, tool

URI = "urn:test:shelf/v1"


class Shelf(Env):
    """Holds items."""

    name = "shelf"

    def __init__(self) -> None:
        self.items: list[str] = []
        self.running = 0
        self.most_running = 0

    @tool
    def put(self, item: Annotated[str, "what to put"], times: Annotated[int, Field(minimum=1)] = 1) -> str:
        """Put an item on the shelf."""
        self.items += [item] * times
        return f"{len(self.items)} items"

    @tool
    async def wait(self, seconds: float) -> str:
        """Wait a while."""
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.running -= 1
        return "waited"

    @tool
    def fail(self, how: str) -> Any:
        """Fail in some way."""
        if how == "refuse":
            raise ToolError("not today")
        if how == "cancel":
            raise asyncio.CancelledError
        if how == "nan":
            return {"x": float("nan")}
        if how == "object":
            return object()
        raise KeyError if how == "silent" else RuntimeError("secret.py broke")

    @tool
    def give(self, what: Any) -> Any:
        """Return what it was given."""
        return {"none": None, "bytes": b"\xffok"}.get(what, what) if isinstance(what, str) else what

    @tool(hidden=True, name="peek")
    def look(self) -> dict[str, Any]:
        """See the shelf."""
        return {"items": self.items}

    @extension(URI)
    def load(self, items: list[str]) -> None:
        """Fill the shelf."""
        if "bad" in items:
            raise ToolError("bad items are refused")
        if "worse" in items:
            raise ValueError("fell over")
        self.items = items

    @extension(URI)
    def count(self) -> int:
        return len(self.items)

    def reset_data(self) -> None:
        self.items = []

    async def add_data(self, parts: list[dict[str, Any]]) -> None:
        self.items += [part["text"] for part in parts if part["kind"] == "text"]

    def get_data(self) -> dict[str, Any]:
        if "break" in self.items:
            raise RuntimeError("no data today")
        return {"items": self.items, "nan": float("nan")} if "nan" in self.items else {"items": self.items}


class SyncShelf(Shelf):
    """A shelf without async methods."""

    wait = None  # type: ignore[assignment]

    def add_data(self, parts: list[dict[str, Any]]) -> None:  # type: ignore[override]
        self.items += [part["text"] for part in parts if part["kind"] == "text"]


if __name__ == "__main__":
    serve(SyncShelf if os.environ.get("SHELF") == "sync" else Shelf)
