"""How many envs come up at once."""

from __future__ import annotations

import asyncio

import pytest

from agent_env.sandbox.process import pace
from agent_env.sandbox.process.pace import Pace


async def test_no_more_than_allowed_run_at_once_and_in_the_order_they_came() -> None:
    ours, running, most, order = Pace(2), 0, 0, []

    async def start(number: int) -> None:
        nonlocal running, most
        async with ours.turn():
            order.append(number)
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(start(number) for number in range(10)))
    assert (most, order) == (2, list(range(10)))


async def test_a_slow_start_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "HOLD_SECONDS", 0.01)
    ours, never = Pace(1), asyncio.Event()

    async def slow() -> None:
        async with ours.turn():
            await never.wait()

    slow_ones = [asyncio.create_task(slow()) for _ in range(3)]
    async with asyncio.timeout(10), ours.turn():
        pass
    never.set()
    await asyncio.gather(*slow_ones)
    async with asyncio.timeout(10), ours.turn():
        pass


async def test_a_cancelled_or_failed_start_gives_its_turn_back() -> None:
    ours = Pace(1)
    holder, waiter = (asyncio.create_task(_hold(ours)) for _ in range(2))
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    with pytest.raises(ZeroDivisionError):
        async with ours.turn():
            raise ZeroDivisionError
    async with asyncio.timeout(10), ours.turn():
        pass


async def _hold(ours: Pace) -> None:
    async with ours.turn():
        await asyncio.sleep(60)
