"""Running the user's code over many items: one code path for plain and async functions."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Item = TypeVar("Item")

Work = Callable[[Item], Coroutine[Any, Any, None]]
"""Handles one item. For a plain function it never awaits; what it makes, it keeps itself."""


class Workers:
    """As many hands as `width` for one stage of an experiment, shared by all its chunks in this process.

    Async work is awaited on the loop, plain work runs on threads that draw from one queue: so a slow function keeps
    `width` threads busy, and a quick one costs no hand-over per item.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="evalflows-items")
        self._places = asyncio.Semaphore(width)

    async def run(self, work: Work[Item], items: Iterable[Item], *, is_async: bool) -> None:
        """Handle every item. The first exception that `work` raises is raised when the others have ended."""
        queue: SimpleQueue[Item] = SimpleQueue()
        for item in items:
            queue.put(item)
        hands = min(self._width, queue.qsize())
        if is_async:
            jobs: list[Any] = [self._draw_async(work, queue) for _ in range(hands)]
        else:
            running = asyncio.get_running_loop()
            jobs = [
                running.run_in_executor(self._threads, copy_context().run, _draw, work, queue) for _ in range(hands)
            ]
        results = await asyncio.gather(*jobs, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def _draw_async(self, work: Work[Item], queue: "SimpleQueue[Item]") -> None:
        while True:
            async with self._places:
                try:
                    item = queue.get_nowait()
                except Empty:
                    return
                await work(item)


def _draw(work: Work[Item], queue: "SimpleQueue[Item]") -> None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return
        _finish(work(item))


def _finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that has nothing to wait for, here and now."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("plain work must not await")
