"""The warm pool, over a sandbox of plain objects: no process, no clock."""

from __future__ import annotations

import asyncio

import pytest

from agent_env.sandbox import DeployFailed
from agent_env.sandbox import shelf as shelf_module
from agent_env.sandbox.pool import WarmPool

from .fakes import FakeSandbox, env_spec, settle


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_module, "FIRST_PAUSE", 0.02)


async def test_prepared_env_is_kept_warm_and_handed_out_without_a_start() -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=2)
    await pool.prepare(env)
    await settle()
    assert pool.warm == {"echo": 2}
    inner.gate.clear()
    instance = await pool.deploy(env, episode_id="e1")
    assert instance.id == "echo-1"
    assert pool.warm == {"echo": 1}
    inner.gate.set()
    await settle()
    assert pool.warm == {"echo": 2}, "refilled in the background"
    await pool.close()


async def test_no_env_is_handed_out_twice() -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=3)
    await pool.prepare(env)
    seen = []
    for number in range(20):
        instance = await pool.deploy(env, episode_id=str(number))
        seen.append(instance.id)
        await instance.kill()
        if number % 3 == 0:
            await settle()
    assert len(set(seen)) == 20
    await pool.close()
    assert not inner.running


async def test_envs_of_different_digests_are_not_mixed_up() -> None:
    inner = FakeSandbox()
    pool = WarmPool(inner, warm=1)
    old, new = env_spec(digest="old"), env_spec(digest="new")
    await pool.prepare(old)
    await settle()
    assert (await pool.deploy(new, episode_id="e")).env.digest == "new"
    await pool.close()


async def test_an_env_that_died_while_it_waited_is_never_handed_out(short_pauses: None) -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=1)
    await pool.prepare(env)
    await settle()
    inner.made[0].crash("killed: out of memory")
    instance = await pool.deploy(env, episode_id="e1")
    assert instance.id != inner.made[0].id
    assert inner.made[0].killed == 1
    await pool.close()


async def test_an_env_that_dies_while_warm_is_told_and_replaced_after_a_pause(
    short_pauses: None, caplog: pytest.LogCaptureFixture
) -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=1)
    await pool.prepare(env)
    await settle()
    inner.made[0].crash("exit status 3")
    await settle()
    assert pool.warm == {"echo": 0}
    assert "exit status 3" in pool.errors["echo"]
    assert "ended before it was used: exit status 3" in caplog.text
    assert inner.made[0].killed == 1, "what is left of it is removed"
    await asyncio.sleep(0.1)
    assert pool.warm == {"echo": 1}
    await pool.close()


async def test_a_crashing_env_does_not_spin_the_pool_and_its_error_shows(short_pauses: None) -> None:
    inner, env = FakeSandbox(), env_spec()
    inner.fail = "env 'echo' exited: ModuleNotFoundError"
    pool = WarmPool(inner, warm=4)
    await pool.prepare(env)
    await asyncio.sleep(0.1)
    assert inner.asked < 4 * 5, "each failure doubles the pause"
    assert "ModuleNotFoundError" in pool.errors["echo"]
    with pytest.raises(DeployFailed, match="ModuleNotFoundError"):
        await pool.deploy(env, episode_id="e1")
    inner.fail = None
    await pool.deploy(env, episode_id="e2")
    await settle()
    assert pool.errors == {}
    assert pool.warm == {"echo": 4}, "a deploy that works ends the pause"
    await pool.close()


async def test_the_host_never_holds_more_than_max_live() -> None:
    inner = FakeSandbox()
    pool = WarmPool(inner, warm=4, max_live=6)
    first, second = env_spec("first"), env_spec("second")
    await pool.prepare(first)
    await pool.prepare(second)
    await settle()
    assert sum(pool.warm.values()) == 6
    live = [await pool.deploy(env, episode_id=str(number)) for number, env in enumerate([first, second] * 3)]
    await settle()
    assert inner.most == 6
    assert sum(pool.warm.values()) == 0
    await live[0].kill()
    await settle()
    assert sum(pool.warm.values()) == 1, "the room of an ended episode is filled again"
    assert inner.most == 6
    await pool.close()


async def test_a_deploy_takes_the_room_of_another_envs_warm_one() -> None:
    inner = FakeSandbox()
    pool = WarmPool(inner, warm={"warm": 3}, max_live=3)
    await pool.prepare(env_spec("warm"))
    await settle()
    instance = await pool.deploy(env_spec("cold"), episode_id="e")
    assert instance.env.name == "cold"
    assert inner.most == 3
    await pool.close()


async def test_cancelled_deploy_leaves_nothing_behind() -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=0, max_live=2)
    inner.gate.clear()
    task = asyncio.create_task(pool.deploy(env, episode_id="e"))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    inner.gate.set()
    await settle()
    assert not inner.running
    assert pool._room() == 2
    await pool.close()


async def test_close_ends_warm_and_starting_envs_and_then_the_sandbox() -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=2)
    await pool.prepare(env)
    await settle()
    inner.gate.clear()
    await pool.deploy(env, episode_id="live")
    await settle()  # one ready, one starting
    await pool.close()
    inner.gate.set()
    await settle()
    assert not inner.running
    assert inner.closed == 1
    assert pool.warm == {"echo": 0}
    await pool.close()


async def test_nothing_is_kept_warm_for_an_env_that_is_not_named() -> None:
    inner = FakeSandbox()
    pool = WarmPool(inner, warm={"other": 2})
    await pool.prepare(env_spec())
    await settle()
    assert inner.asked == 0
    await pool.close()


async def test_output_end_and_verify_pass_through() -> None:
    inner, env = FakeSandbox(), env_spec()
    pool = WarmPool(inner, warm=1)
    await pool.prepare(env)
    await settle()
    instance = await pool.deploy(env, episode_id="e")
    assert instance.output == "output of echo-1"
    inner.made[0].crash("exit status 9")
    assert await instance.wait() == "exit status 9"
    await pool.close()
