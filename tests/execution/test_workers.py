"""Many items at once, plain and async, by one code path."""

import asyncio
import threading
import time
from typing import Any

import pytest

from evalflows.engine import workers as module
from evalflows.engine.workers import Workers
from evalflows.llm import loop


def run(workers: Workers, work: Any, items: Any, *, is_async: bool) -> None:
    loop.run(workers.run(work, items, is_async=is_async))


def test_plain_work_runs_on_as_many_threads_as_the_width() -> None:
    threads: set[str] = set()
    barrier = threading.Barrier(4, timeout=5)

    async def work(item: int) -> None:
        barrier.wait()  # passes only if four are here at once
        threads.add(threading.current_thread().name)

    run(Workers(4), work, range(8), is_async=False)
    assert len(threads) == 4


def test_async_work_is_bounded_over_all_chunks_together() -> None:
    now, peak, done = 0, 0, []

    async def work(item: int) -> None:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.01)
        now -= 1
        done.append(item)

    workers = Workers(3)

    async def two_chunks() -> None:
        await asyncio.gather(*(workers.run(work, range(i, i + 5), is_async=True) for i in (0, 5)))

    loop.run(two_chunks())
    assert (peak, sorted(done)) == (3, list(range(10)))


@pytest.mark.parametrize("is_async", [True, False])
def test_an_exception_is_raised_when_the_other_hands_have_ended(is_async: bool) -> None:
    done: list[int] = []

    async def work(item: int) -> None:
        if item == 0:
            raise MemoryError("no more")
        if is_async:
            await asyncio.sleep(0.01)
        else:
            time.sleep(0.01)
        done.append(item)

    with pytest.raises(MemoryError):
        run(Workers(2), work, range(5), is_async=is_async)
    assert done == [1, 2, 3, 4]


def test_plain_work_that_waits_is_a_fault() -> None:
    async def work(item: int) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="must not await"):
        run(Workers(1), work, [1], is_async=False)


class Seen:
    """Work that takes so long, and which threads did it."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.threads: list[str] = []
        self.done: list[int] = []

    async def __call__(self, item: int) -> None:
        if self.seconds:
            time.sleep(self.seconds)
        self.threads.append(threading.current_thread().name)
        self.done.append(item)


def test_quick_plain_work_stays_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKER_CHECK_INTERVAL_S", 5.0)  # however busy the machine is, by then it is done
    work = Seen()
    run(Workers(8), work, range(2000), is_async=False)
    assert work.done == list(range(2000)), "one after another, in order"
    assert len({*work.threads}) == 1


def test_slow_plain_work_soon_has_all_threads() -> None:
    work, began = Seen(0.05), time.monotonic()
    run(Workers(8), work, range(41), is_async=False)
    assert sorted(work.done) == list(range(41))
    assert len({*work.threads}) == 8
    assert time.monotonic() - began < 41 * 0.05 / 2, "one alone would take 2 s, eight take 0.3 s"


def test_work_that_becomes_slow_gets_the_others_then() -> None:
    seen = Seen()

    async def work(item: int) -> None:
        time.sleep(0.05 if item >= 100 else 0.0)
        await seen(item)

    run(Workers(4), work, range(140), is_async=False)
    assert sorted(seen.done) == list(range(140))
    assert len({*seen.threads[100:]}) == 4


def test_plain_work_that_is_cancelled_ends_between_two_items() -> None:
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        time.sleep(0.02)

    async def cancelled() -> None:
        running = asyncio.ensure_future(Workers(1).run(work, range(1000), is_async=False))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    loop.run(cancelled())
    at_the_end = len(begun)
    time.sleep(0.1)
    assert len(begun) <= at_the_end + 1 < 1000
