"""Run user code over many items: sync and async functions, in processes of their own where a time limit or a crash must
cost one judgement only."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

Result = TypeVar("Result")


class _Threads(Executor):
    """At most `width` threads, which end when there is nothing to do.

    They are daemons, unlike those of ThreadPoolExecutor: after an interrupt, a call of the user's that hangs must not
    keep the process alive.
    """

    def __init__(self, width: int) -> None:
        self._width, self._running = width, 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock, self._numbers = threading.Lock(), count()

    def submit(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.append((future, partial(function, *args, **kwargs)))
            if self._running == self._width:
                return future
            self._running += 1
        threading.Thread(target=self._work, name=f"evalflows-items_{next(self._numbers)}", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)


Item = TypeVar("Item")

Work = Callable[[Item], Coroutine[Any, Any, None]]
"""Handles one item and stores its result itself. For a sync function it never awaits."""


QUICK_S = 0.002
"""If an item takes less, a single thread is enough."""

WORKER_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.01, 0.1
"""Intervals at which the speed of the first thread is checked: ever longer, since each check interrupts it."""


class Workers:
    """`width` workers for one stage of experiments, shared by all their chunks in this process.

    Chunks are served in order of arrival. With equal shares all chunks would end at the same time, and nothing would be
    in flight while the next stage starts.

    Async work is awaited on the event loop; sync work runs on threads that take items from one queue. A slow function
    keeps `width` threads busy. A quick one gets a single thread: because of the GIL, more would only wait for each
    other.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._threads = _Threads(width)
        self._places = _Places(width)
        self._turns = count()

    async def run(self, work: Work[Item], items: Iterable[Item], *, is_async: bool) -> None:
        """Handle every item. Raise the first exception of `work`, after all workers have ended."""
        queue: SimpleQueue[Item] = SimpleQueue()
        for item in items:
            queue.put(item)
        n_workers = min(self.width, queue.qsize())
        if is_async:
            turn = next(self._turns)
            jobs: list[Any] = [self._draw_async(work, queue, turn) for _ in range(n_workers)]
        else:
            jobs = await self._on_threads(work, queue, n_workers)
        try:
            results = await asyncio.gather(*jobs, return_exceptions=True)
        except asyncio.CancelledError:
            with suppress(Empty):  # threads go on with the item they are at
                while True:
                    queue.get_nowait()
            raise
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def call_on_thread(self, function: Callable[[Item], Result], argument: Item) -> Result:
        """Call a sync function from async work, on one of the threads. Raise what it raises."""

        def call() -> tuple[Result | None, BaseException | None]:
            try:
                return function(argument), None
            except BaseException as error:  # as a value: a StopIteration in a future would never be delivered
                return None, error

        running = asyncio.get_running_loop()
        result, error = await running.run_in_executor(self._threads, copy_context().run, call)
        if error is not None:
            raise error
        return cast("Result", result)

    async def _on_threads(
        self, work: Work[Item], queue: "SimpleQueue[Item]", n_workers: int
    ) -> list["asyncio.Future[None]"]:
        """Start one worker thread, and the others once the first proves slow."""
        running, items = asyncio.get_running_loop(), queue.qsize()

        def start() -> "asyncio.Future[None]":
            return running.run_in_executor(self._threads, copy_context().run, _draw, work, queue)

        if not n_workers:
            return []
        first, began, interval = start(), running.time(), WORKER_CHECK_INTERVAL_S
        while n_workers > 1 and not first.done():
            await asyncio.wait([first], timeout=interval)
            interval = min(2 * interval, MAX_CHECK_INTERVAL_S)
            handled = items - queue.qsize() - 1  # without the current one
            if (running.time() - began) > handled * QUICK_S and not queue.empty():
                return [first, *(start() for _ in range(n_workers - 1))]
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
    """A semaphore that serves the lowest turn first."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    async def take(self, turn: int) -> None:
        if self._free:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (turn, next(self._arrivals), waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give()
            raise

    def give(self) -> None:
        while self._waiting:
            _, _, waiter = heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


def _draw(work: Work[Item], queue: "SimpleQueue[Item]") -> None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return
        run_sync(work(item))


def run_sync(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, without an event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("sync work must not await")
