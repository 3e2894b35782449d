"""A time limit for async user code that does not count model calls."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from evalflows.evaluators.call import Bound
from evalflows.specs.errors import CallError

GRACE_S = 1.0
"""Seconds that cancelled code has to end; after that it is abandoned, and its result is ignored."""

CHECK_INTERVAL_S = 0.1
"""Seconds between two checks of a judgement that waits for a model."""


async def call_within(timeout_s: float, bound: Bound, available: Mapping[str, Any]) -> Any:
    """Call an async evaluator. Raise CallError `too_slow` if it takes longer than `timeout_s` seconds.

    The clock is paused during model calls, which may queue behind others. A result or error after the cancellation is
    ignored.
    """
    clock = _Clock(timeout_s)
    calls = {name: clock.pausing(available[name]) for name in ("complete", "embed") if available.get(name)}
    task = asyncio.ensure_future(_returned(bound, {**available, **calls}))
    task.add_done_callback(
        lambda ended: ended.cancelled() or ended.exception()
    )  # retrieve the exception, or asyncio complains
    try:
        while not task.done() and (left := clock.left()) > 0:
            await asyncio.wait({task}, timeout=CHECK_INTERVAL_S if clock.is_paused else left)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)
        raise CallError("too_slow", f"took longer than {timeout_s:g} s and was stopped")
    finally:
        task.cancel()


async def _returned(bound: Bound, available: Mapping[str, Any]) -> Any:
    returned = bound.call(available)
    return await returned if isawaitable(returned) else returned


class _Clock:
    """Counts down the seconds left; paused while at least one model call is in flight."""

    def __init__(self, seconds: float) -> None:
        self._left, self._since, self._in_flight = seconds, time.monotonic(), 0

    @property
    def is_paused(self) -> bool:
        return self._in_flight > 0

    def left(self) -> float:
        return self._left if self.is_paused else self._left - (time.monotonic() - self._since)

    def pausing(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Wrap `complete` or `embed` so that the clock is paused during a call."""

        async def paused(*args: Any, **kwargs: Any) -> Any:
            self._left = self.left()
            self._in_flight += 1
            try:
                return await call(*args, **kwargs)
            finally:
                self._in_flight -= 1
                self._since = time.monotonic()

        return paused
