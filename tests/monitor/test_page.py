"""The live page in a real browser, while episodes play."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from agent_env.loopback import serving
from agent_env.monitor.recent import Recent
from agent_env.openenv import build_app
from agent_env.openenv.client import Session
from tests.monitor.browser import open_page
from tests.monitor.test_traces import event

TOKEN = "t0ken"
LIVE, CAPACITY = 64, 80


def test_recent_forgets_old_episodes_and_bounds_texts() -> None:
    recent = Recent()
    for number in range(500):
        recent(event("call", f"e{number}", tool="t", arguments={}, seconds=0.1, result="x" * 100_000, error=None))
        recent(event("closed", f"e{number}", seconds=0.0))
    assert recent.events("e0") is None
    found = recent.events("e499")
    assert found is not None
    assert len(found[0]["result"]) < 5000
    assert len(list(recent.finished())) == 200


def test_recent_keeps_how_a_long_episode_ended() -> None:
    recent = Recent()
    for number in range(5000):
        recent(event("call", tool="t", arguments={"n": number}, seconds=0.1, result="", error=None))
    recent(event("scored", reward=0.5, seconds=0.1, scores={}))
    recent(event("closed", seconds=0.0))
    (finished,) = recent.finished()
    assert finished["end"] == "scored"
    assert finished["reward"] == 0.5
    assert len(recent.events("e1") or []) < 400


@asynccontextmanager
async def playing(url: str) -> AsyncIterator[list[Session]]:
    """LIVE episodes that have begun, and one that was scored."""
    sessions = []
    try:
        for index in range(LIVE + 1):
            session = await Session.open(url, timeout=30, wait=30, call_timeout=60, token=TOKEN)
            sessions.append(session)
            await session.reset(timeout=60, split="eval", index=index)
        await sessions[0].call("submit_schedule", {"schedule": [0] * 24}, timeout=60)
        await sessions[0].call("end_turn", {"response": "done"}, timeout=60)
        yield sessions
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


@pytest.mark.integration
async def test_the_page_and_what_it_asks_for_need_the_token_and_cost_one_status_a_second() -> None:
    async with (
        serving(build_app("gridsim-v1", token=TOKEN)) as url,
        httpx.AsyncClient(trust_env=False, base_url=url) as client,
    ):
        for path in ("/ui", "/ui/state", "/ui/episodes/x", "/ui/views/gridsim-v1"):
            refused = await client.get(path)
            assert refused.status_code == 401
            assert "Basic" in refused.headers["www-authenticate"]  # a browser asks for it
        client.auth = httpx.BasicAuth("any", TOKEN)
        assert (await client.get("/ui")).status_code == 200
        first, second = (await client.get("/ui/state")).json(), (await client.get("/ui/state")).json()
        assert first["now"] == second["now"]
        assert (await client.get("/ui/episodes/x")).status_code == 404
        assert (await client.get("/ui/views/../app")).status_code == 404
        assert "sandbox allow-scripts" in (await client.get("/ui/views/gridsim-v1")).headers["content-security-policy"]


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
async def test_the_page_shows_what_the_server_does(dark: bool, tmp_path: Path) -> None:
    async with serving(build_app("gridsim-v1", max_concurrent_envs=CAPACITY, token=TOKEN)) as url, playing(url):
        host = urlsplit(url).netloc
        async with open_page(f"http://any:{TOKEN}@{host}/ui", dark=dark) as page:
            # Counts match /status.
            await page.until(f"document.querySelectorAll('#live tr').length === {LIVE}")
            tiles = await page.run("document.getElementById('tiles').innerText")
            assert str(LIVE) in tiles
            assert f"of {CAPACITY} envs live" in tiles
            assert "0.200" in await page.run("document.getElementById('finished').innerText")

            # A trace opens from the keyboard, with the bundle's own drawing, and closes again.
            await page.run("document.querySelector('#finished button').focus()")
            for kind in ("rawKeyDown", "char", "keyUp"):
                await page.send(
                    "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13
                )
            await page.until(
                "document.getElementById('episode').open && document.querySelectorAll('#events pre').length > 3"
            )
            assert "submit_schedule" in await page.run("document.getElementById('events').innerText")
            await page.until("document.querySelector('iframe') !== null")
            if folder := os.environ.get("AGENT_ENV_SCREENSHOTS"):
                await asyncio.sleep(1)
                await page.screenshot(Path(folder) / f"trace-{'dark' if dark else 'light'}.png")
            await page.run("document.getElementById('close').click()")
            if folder:
                await page.screenshot(Path(folder) / f"page-{'dark' if dark else 'light'}.png")

            assert page.console == []
            assert {urlsplit(address).netloc.rpartition("@")[2] for address in page.requested} <= {host, ""}


@pytest.mark.browser
async def test_an_episode_that_is_stuck_stands_out() -> None:
    async with serving(build_app("gridsim-v1", max_concurrent_envs=CAPACITY)) as url, open_page(f"{url}/ui") as page:
        await page.until("document.getElementById('hidden')?.innerText === 'none'")
        stuck = (
            "{episode_id: 'a', task: {name: 'slow'}, phase: 'calling', tool: 'sleep', phase_age: 31, age: 40, steps: 1}"
        )
        thinks = "{episode_id: 'b', task: {name: 'ok'}, phase: 'idle', tool: null, phase_age: 300, age: 301, steps: 1}"
        await page.run(f"rows({{hidden: 0, finished: [], episodes: [{stuck}, {thinks}]}})")
        assert await page.run("[...document.querySelectorAll('tr.stuck')].map(row => row.innerText).join()") != ""
        assert "slow" in await page.run("document.querySelector('tr.stuck').innerText")
        assert await page.run("document.querySelectorAll('tr.stuck').length") == 1
