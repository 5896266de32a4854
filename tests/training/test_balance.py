"""Which of several equal servers a rollout begins at."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent_env.training import balance
from agent_env.training.balance import Balancer, balancer


class StatusServer:
    """Answers GET /status with what it is told, any other way than 200 with an empty body, and counts."""

    def __init__(self, live: int = 0, *, waiting: int = 0, capacity: int = 10, code: int = 200) -> None:
        self.said: Any = {"live": live, "waiting": waiting, "capacity": capacity}
        self.code = code
        self.silent = False
        self.asked = 0
        self.heads: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[StatusServer]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        self.asked += 1
        if not self.silent:
            body = json.dumps(self.said).encode()
            writer.write(b"HTTP/1.1 %d Status\r\nconnection: close\r\n" % self.code)
            writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
        else:
            await reader.read()
        writer.close()


@pytest.fixture
def age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is too old at once."""
    monkeypatch.setattr(balance, "FRESH", 0.0)


async def test_a_single_server_is_not_asked() -> None:
    async with StatusServer().serve() as one:
        assert await Balancer().order([one.url], None) == [one.url]
        assert one.asked == 0


async def test_the_less_loaded_comes_first() -> None:
    async with StatusServer(9).serve() as busy, StatusServer(1).serve() as idle:
        assert await Balancer().order([busy.url, idle.url], None) == [idle.url, busy.url]


async def test_one_that_can_deploy_nothing_is_not_the_idle_one() -> None:
    async with StatusServer(9).serve() as busy, StatusServer(0).serve() as stuck:
        stuck.said["problem"] = "env 'x': the disk is full"
        assert await Balancer().order([stuck.url, busy.url], None) == [busy.url, stuck.url]


async def test_load_is_a_share_of_the_capacity() -> None:
    async with StatusServer(9, capacity=100).serve() as big, StatusServer(5, capacity=8).serve() as small:
        assert (await Balancer().order([small.url, big.url], None))[0] == big.url


async def test_when_all_are_full_the_shortest_queue_comes_last_where_it_is_queued() -> None:
    async with StatusServer(10, waiting=5).serve() as long, StatusServer(10, waiting=2).serve() as short:
        assert await Balancer().order([short.url, long.url], None) == [long.url, short.url]


async def test_what_was_sent_counts_until_the_next_answer() -> None:
    """A thousand rollouts that begin at once must not all go where a second ago there was most room."""
    async with StatusServer(0).serve() as first, StatusServer(0).serve() as second:
        ours = Balancer()
        orders = await asyncio.gather(*(ours.order([first.url, second.url], None) for _ in range(16)))
        assert Counter(order[0] for order in orders) == {first.url: 8, second.url: 8}
        assert (first.asked, second.asked) == (1, 1)


async def test_three_servers_get_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "sample", random.Random(1).sample)
    async with StatusServer(0).serve() as a, StatusServer(0).serve() as b, StatusServer(0).serve() as c:
        ours = Balancer()
        first = Counter([(await ours.order([a.url, b.url, c.url], None))[0] for _ in range(27)])
    assert set(first.values()) <= {8, 9, 10}


@pytest.mark.usefixtures("age")
async def test_a_dead_server_is_left_out_and_rejoins_when_it_is_back() -> None:
    dead = StatusServer(0)
    async with StatusServer(5).serve() as living:
        async with dead.serve():
            pass
        ours, urls = Balancer(), [dead.url, living.url]
        assert await ours.order(urls, None) == [living.url]
        async with dead.serve():
            assert await ours.order(urls, None) == [dead.url, living.url]


@pytest.mark.parametrize("code", [500, 503, 429])
async def test_a_proxy_whose_server_is_down_counts_as_dead(code: int) -> None:
    async with StatusServer(0, code=code).serve() as down, StatusServer(5).serve() as living:
        assert await Balancer().order([down.url, living.url], None) == [living.url]


async def test_when_all_seem_dead_all_are_tried() -> None:
    dead = [StatusServer(), StatusServer()]
    for one in dead:
        async with one.serve():
            pass
    assert set(await Balancer().order([one.url for one in dead], None)) == {one.url for one in dead}


async def test_a_silent_server_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "ASK_SECONDS", 0.1)
    async with StatusServer(0).serve() as silent, StatusServer(5).serve() as living:
        silent.silent = True
        assert await Balancer().order([silent.url, living.url], None) == [living.url]


@pytest.mark.parametrize("said", [None, [], {}, {"live": "x", "waiting": 0, "capacity": 1}, {"live": 1, "capacity": 0}])
async def test_servers_that_dont_say_are_tried_in_random_order(said: Any) -> None:
    async with StatusServer().serve() as a, StatusServer().serve() as b:
        a.said = b.said = said
        orders = {tuple(await Balancer().order([a.url, b.url], None)) for _ in range(20)}
    assert orders == {(a.url, b.url), (b.url, a.url)}


@pytest.mark.parametrize("code", [401, 404])
async def test_a_server_that_refuses_to_say_is_tried_all_the_same(code: int) -> None:
    async with StatusServer(code=code).serve() as mute, StatusServer(5).serve() as living:
        assert set(await Balancer().order([mute.url, living.url], None)) == {mute.url, living.url}


async def test_the_token_is_sent_and_no_episode_asked_for() -> None:
    async with StatusServer().serve() as a, StatusServer().serve() as b:
        await Balancer().order([a.url, b.url], "s3cret")
        for one in (a, b):
            assert one.heads[0].startswith("GET /status?episodes=false HTTP/1.1\r\n")
            assert "authorization: Bearer s3cret" in one.heads[0].replace("Authorization", "authorization")


async def test_a_cancelled_asker_leaves_the_others_their_answer() -> None:
    async with StatusServer(9).serve() as busy, StatusServer(1).serve() as idle:
        ours, urls = Balancer(), [busy.url, idle.url]
        leaver, stayer = (asyncio.create_task(ours.order(urls, None)) for _ in range(2))
        await asyncio.sleep(0)
        leaver.cancel()
        assert await stayer == [idle.url, busy.url]


async def test_an_event_loop_has_one_balancer() -> None:
    assert balancer() is balancer()
