"""Many items at once, plain and async, by one code path."""

import asyncio
import threading
import time
from typing import Any

import pytest

from llm import loop
from tasks.workers import Workers


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


def test_no_items_are_no_work() -> None:
    async def work(item: int) -> None:
        raise AssertionError

    run(Workers(2), work, [], is_async=True)
    run(Workers(2), work, [], is_async=False)


def test_plain_work_that_waits_is_a_fault() -> None:
    async def work(item: int) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="must not await"):
        run(Workers(1), work, [1], is_async=False)
