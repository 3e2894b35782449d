"""Time limits of sync code in threads."""

import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from evalflows.evaluators.binding import Bound
from evalflows.targets import ended_within

TIMEOUT_CHECK_INTERVAL_S = 0.1
"""Seconds between two checks of a judgement that waits for a model."""


async def call_within(timeout_s: float, bound: Bound, available: Mapping[str, Any]) -> Any:
    """Call an async evaluator. Raise CallError `too_slow` if it takes longer than `timeout_s` seconds.

    The clock is paused during model calls, which may queue behind others.
    """
    clock = _Clock(timeout_s)
    calls = {name: clock.pausing(available[name]) for name in ("complete", "embed") if available.get(name)}

    def left_s() -> float:
        left = clock.left()
        return TIMEOUT_CHECK_INTERVAL_S if clock.is_paused and left > 0 else left

    return await ended_within(timeout_s, _returned(bound, {**available, **calls}), left_s)


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
