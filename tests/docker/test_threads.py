from __future__ import annotations

import threading

import pytest

from agent_env.sandbox.docker.threads import Threads


def test_no_more_run_at_a_time_than_there_are_threads() -> None:
    threads = Threads("test", 3)
    entered = threading.Semaphore(0)
    release = threading.Event()

    def work() -> str:
        entered.release()
        release.wait(10)
        return threading.current_thread().name

    futures = [threads.submit(work) for _ in range(9)]
    for _ in range(3):
        assert entered.acquire(timeout=5)
    assert not entered.acquire(timeout=0.1)
    release.set()
    assert len({future.result(5) for future in futures}) <= 3
    threads.close()


def test_what_has_not_begun_can_be_cancelled_and_what_has_can_not() -> None:
    threads = Threads("test", 1)
    begun, release = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return release.wait(10)

    first = threads.submit(work)
    ran: list[int] = []
    second = threads.submit(lambda: ran.append(1))
    assert begun.wait(5)
    assert second.cancel()
    assert not first.cancel()
    release.set()
    assert first.result(5) is True
    assert threads.submit(lambda: 7).result(5) == 7
    assert ran == []
    threads.close()


def test_an_error_is_the_futures_and_the_thread_goes_on() -> None:
    threads = Threads("test", 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(5)
    assert threads.submit(lambda: "well").result(5) == "well"
    threads.close()


def test_no_thread_keeps_the_process_from_ending() -> None:
    threads = Threads("test", 1)
    assert threads.submit(lambda: threading.current_thread().daemon).result(5)
    threads.close()
