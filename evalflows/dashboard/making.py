"""Makes answers in threads, a few at a time, and tells them when nobody waits for them any more."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.types import Receive

from evalflows.store.stop import Stop, StoppedError

Result = TypeVar("Result")

AT_ONCE = 8
"""Answers that are made at once: each may read much, and a flood of requests must leave threads for others."""
WAIT_S = 30.0
"""Seconds that a request waits for its turn."""
STOPPED = "stopped before it was done: the dashboard is stopping, or nobody waits for this any more"


class BusyError(Exception):
    """A request whose turn did not come in time."""


class Making:
    """The answers that are being made, and the requests that wait for their turn."""

    def __init__(self, at_once: int = AT_ONCE, wait_s: float = WAIT_S) -> None:
        self._places, self._wait_s = asyncio.Semaphore(at_once), wait_s
        self._stop = Stop()
        self._made: set[Stop] = set()  # of what threads work on

    @property
    def is_busy(self) -> bool:
        """Whether threads still work, also on what nobody waits for."""
        return bool(self._made)

    def stop(self) -> None:
        """Tell all that is being made, or will be, to stop."""
        self._stop.set()

    async def run(self, work: Callable[[Stop], Result], receive: Receive | None = None) -> Result:
        """Return the result of `work`, done in a thread when its turn has come.

        With `receive`, which must have no more of the request to give, its stop is set when the client goes.

        Raise BusyError if its turn does not come in time, and StoppedError if nobody waits for it by then, or if the
        server stops before it is done.
        """
        stop, is_set = Stop(), asyncio.Event()
        note = partial(asyncio.get_running_loop().call_soon_threadsafe, is_set.set)
        with self._stop.on_stop(stop.set), stop.on_stop(note):
            watching = None if receive is None else asyncio.create_task(_watch(receive, stop))
            try:
                await self._turn(is_set)
                try:
                    self._made.add(stop)
                    return await run_in_threadpool(self._work, work, stop)
                finally:
                    self._places.release()
            except asyncio.CancelledError:
                if self._stop.is_set():
                    raise StoppedError(STOPPED) from None
                raise
            finally:
                if watching is not None:
                    watching.cancel()

    async def _turn(self, is_set: asyncio.Event) -> None:
        """Take a place, unless it is in vain."""
        tasks = taking, _ = asyncio.create_task(self._places.acquire()), asyncio.create_task(is_set.wait())
        try:
            await asyncio.wait(tasks, timeout=self._wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if is_set.is_set():
            if taking.done():
                self._places.release()
            raise StoppedError(STOPPED)
        if not taking.done():
            raise BusyError(f"too many requests at once: this one waited {self._wait_s:g} s for its turn; try again")

    def _work(self, work: Callable[[Stop], Result], stop: Stop) -> Result:
        try:
            return work(stop)
        finally:
            self._made.discard(stop)


async def _watch(receive: Receive, stop: Stop) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stop.set()
