"""A headless Chromium driven over its debugging protocol, with the packages that the project has anyway."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

__all__ = ["Page", "open_page"]

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--window-size=1280,1000",
)


class Page:
    """One tab. `console` holds its errors and warnings, `requested` every address that it asked for."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._count = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.console: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                self._answers.pop(message["id"]).set_result(message)
            elif message["method"] == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            elif message["method"] == "Runtime.exceptionThrown":
                self.console.append(json.dumps(message["params"]["exceptionDetails"])[:500])
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] in ("error", "warning"):
                self.console.append(message["params"]["entry"]["text"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        answer = self._answers[self._count] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": self._count, "method": method, "params": params}))
        found: dict[str, Any] = await asyncio.wait_for(answer, 30)
        assert "error" not in found, found
        return found["result"]  # type: ignore[no-any-return]

    async def run(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        found = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str, seconds: float = 20.0) -> Any:
        """Wait until the expression is truthy, and return it."""
        async with asyncio.timeout(seconds):
            while not (value := await self.run(script)):
                await asyncio.sleep(0.1)
        return value

    async def screenshot(self, path: Path) -> None:
        shot = await self.send("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def open_page(url: str, *, dark: bool = False) -> AsyncIterator[Page]:
    """A tab at `url`. Skips, or fails where all levels must run, if there is no Chromium."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        message = "no Chromium: apt-get install chromium"
        if os.environ.get("AGENT_ENV_REQUIRE_ALL"):
            pytest.fail(message)
        pytest.skip(message)
    with tempfile.TemporaryDirectory(prefix="agent-env-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(  # noqa: ASYNC220
            [chromium, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            env={**os.environ, "TMPDIR": profile},  # it leaves folders behind
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        listening: asyncio.Task[None] | None = None
        try:
            port = await _port(Path(profile))
            async with httpx.AsyncClient(trust_env=False) as client:
                tabs = (await client.get(f"http://127.0.0.1:{port}/json")).json()
            address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
            async with connect(address, proxy=None, max_size=1 << 26) as socket:
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.send(f"{domain}.enable")
                scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
                await page.send("Emulation.setEmulatedMedia", features=[scheme])
                await page.send("Page.navigate", url=url)
                yield page
        finally:
            if listening is not None:
                listening.cancel()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _port(profile: Path) -> int:
    file = profile / "DevToolsActivePort"
    async with asyncio.timeout(30):
        while not file.exists() or not file.read_text().strip():
            await asyncio.sleep(0.05)
    return int(file.read_text().split()[0])
