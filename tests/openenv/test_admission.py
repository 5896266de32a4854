from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_env.openenv.admission import Admission, AtCapacity, Closing, Slot


async def queued(admission: Admission, wait: float = 60) -> asyncio.Task[Slot]:
    """A waiter that stands in the queue already."""
    task = asyncio.create_task(admission.acquire(wait))
    await asyncio.sleep(0)
    return task


async def test_slots_up_to_the_limit_and_no_more():
    admission = Admission(2)
    first = admission.acquire_now()
    admission.acquire_now()
    with pytest.raises(AtCapacity, match="2/2 sessions active"):
        admission.acquire_now()
    first.release()
    first.release()
    assert admission.live == 1
    admission.acquire_now()


async def test_slots_go_to_waiters_in_the_order_they_came():
    admission = Admission(1)
    slot = admission.acquire_now()
    waiters = [await queued(admission) for _ in range(3)]
    for number, waiter in enumerate(waiters):
        slot.release()
        slot = await waiter
        assert [other.done() for other in waiters[number + 1 :]] == [False] * (2 - number)


async def test_nobody_overtakes_the_queue():
    admission = Admission(1)
    slot = admission.acquire_now()
    waiter = await queued(admission)
    slot.release()
    with pytest.raises(AtCapacity):
        admission.acquire_now()
    assert isinstance(await waiter, Slot)


async def test_a_wait_that_runs_out_leaves_the_queue():
    admission = Admission(1)
    admission.acquire_now()
    with pytest.raises(AtCapacity, match=r"no room within 0\.01 s"):
        await admission.acquire(0.01)
    assert admission.waiting == 0


async def test_a_waiter_that_leaves_is_skipped():
    admission = Admission(1)
    slot = admission.acquire_now()
    leaver, stayer = await queued(admission), await queued(admission)
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert admission.waiting == 1
    slot.release()
    assert isinstance(await stayer, Slot)


async def test_a_waiter_cancelled_as_it_is_served_passes_the_slot_on():
    admission = Admission(1)
    slot = admission.acquire_now()
    leaver, stayer = await queued(admission), await queued(admission)
    slot.release()
    leaver.cancel()
    await asyncio.gather(leaver, return_exceptions=True)
    assert isinstance(await asyncio.wait_for(stayer, 1), Slot)
    assert admission.live == 1


async def test_a_slot_that_is_being_left_is_awaited_without_queueing():
    admission = Admission(1)
    slot = admission.acquire_now()
    slot.leave()
    slot.leave()
    first = await queued(admission, wait=0)
    with pytest.raises(AtCapacity):  # the one slot that is left is the first's
        await admission.acquire(0)
    slot.release()
    second = await first
    with pytest.raises(AtCapacity):
        await admission.acquire(0)
    second.release()
    assert admission.live == 0


async def test_close_turns_waiters_and_newcomers_away():
    admission = Admission(1)
    admission.acquire_now()
    waiter = await queued(admission)
    admission.close()
    with pytest.raises(Closing):
        await waiter
    with pytest.raises(Closing):
        admission.acquire_now()


def test_a_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="max_concurrent_envs=0"):
        Admission(0)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["come", "leave", "release"]), st.integers(0, 9)), max_size=40),
)
def test_any_order_of_coming_leaving_and_releasing_keeps_the_cap_and_loses_no_slot(limit, moves):
    async def play() -> None:
        admission = Admission(limit)
        waiters: list[asyncio.Task[Slot]] = []
        held: list[Slot] = []
        for move, which in moves:
            if move == "come":
                waiters.append(await queued(admission))
            elif move == "leave" and waiters:
                waiters[which % len(waiters)].cancel()
            elif move == "release" and held:
                held.pop(which % len(held)).release()
            for _ in range(3):
                await asyncio.sleep(0)
            for waiter in [one for one in waiters if one.done()]:
                waiters.remove(waiter)
                if not waiter.cancelled():
                    held.append(waiter.result())
            assert len(held) == admission.live <= limit
            assert not waiters or len(held) == limit
        for slot in held:
            slot.release()
        await asyncio.gather(*waiters)

    async def play_and_leave() -> None:
        task = asyncio.create_task(play())
        await asyncio.wait((task,), timeout=1)
        for left in asyncio.all_tasks() - {asyncio.current_task()}:
            left.cancel()
        if task.done():
            task.result()

    asyncio.run(play_and_leave())
