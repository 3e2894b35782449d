"""Running the user's code over many items: one code path for plain and async functions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

Work = Callable[[Item], Coroutine[Any, Any, None]]
"""Handles one item. For a plain function it never awaits; what it makes, it keeps itself."""


QUICK_S = 0.002
"""Seconds an item may take for one thread to be enough."""

LOOKED_AFTER_S = 0.01
"""Seconds until it is first seen how quick a thread is."""


class Workers:
    """As many hands as `width` for one stage of an experiment, shared by all its chunks in this process.

    Whoever came first is served first: were the hands shared out evenly, all chunks would end at the same time, and
    nothing would be under way while the next stage begins.

    Async work is awaited on the loop, plain work runs on threads that draw from one queue. A slow function keeps
    `width` threads busy. A quick one has a single thread: as only one at a time can run Python, more would do nothing
    but wait for each other.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="evalflows-items")
        self._places = _Places(width)
        self._turns = count()

    async def run(self, work: Work[Item], items: Iterable[Item], *, is_async: bool) -> None:
        """Handle every item. The first exception that `work` raises is raised when the others have ended."""
        queue: SimpleQueue[Item] = SimpleQueue()
        for item in items:
            queue.put(item)
        hands = min(self._width, queue.qsize())
        if is_async:
            turn = next(self._turns)
            jobs: list[Any] = [self._draw_async(work, queue, turn) for _ in range(hands)]
        else:
            jobs = await self._on_threads(work, queue, hands)
        results = await asyncio.gather(*jobs, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def _on_threads(
        self, work: Work[Item], queue: "SimpleQueue[Item]", hands: int
    ) -> list["asyncio.Future[None]"]:
        """One hand, and the others as soon as it is seen to be slow."""
        running, items = asyncio.get_running_loop(), queue.qsize()

        def hand() -> "asyncio.Future[None]":
            return running.run_in_executor(self._threads, copy_context().run, _draw, work, queue)

        if not hands:
            return []
        first, began = hand(), running.time()
        while hands > 1 and not first.done():
            await asyncio.wait([first], timeout=LOOKED_AFTER_S)
            handled = items - queue.qsize() - 1  # but for the one in hand
            if (running.time() - began) > handled * QUICK_S and not queue.empty():
                return [first, *(hand() for _ in range(hands - 1))]
        return [first]

    async def _draw_async(self, work: Work[Item], queue: "SimpleQueue[Item]", turn: int) -> None:
        while not queue.empty():
            await self._places.take(turn)
            try:
                await work(queue.get_nowait())
            except Empty:
                return
            finally:
                self._places.give()


class _Places:
    """A semaphore that lets the lowest turn in first."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    async def take(self, turn: int) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (turn, next(self._arrivals), place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give()
            raise

    def give(self) -> None:
        while self._waiting:
            _, _, place = heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


def _draw(work: Work[Item], queue: "SimpleQueue[Item]") -> None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return
        finished(work(item))


def finished(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that has nothing to wait for, here and now; what it returns."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("plain work must not await")
