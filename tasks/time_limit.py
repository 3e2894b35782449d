"""A time limit for the user's async code, which the calls that it asks for do not use up."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any

from evaluators.call import Bound
from specs.errors import CallError

GRACE_S = 1.0
"""Seconds that code has to end in once it was told to; what goes on then is left to itself, and what it says is not
waited for."""

LOOKED_AFTER_S = 0.1
"""Seconds between two looks at a judgement that waits for a model."""


async def within(timeout_s: float, bound: Bound, offered: Mapping[str, Any]) -> Any:
    """What an async evaluator returns. Raises CallError, `too_slow`, where it takes longer than `timeout_s` seconds.

    While a model is asked for it, its time stands still: it may wait there for others. What it makes of being ended,
    an answer or an error of its own, comes too late.
    """
    clock = _Clock(timeout_s)
    asks = {name: clock.asking(offered[name]) for name in ("complete", "embed") if offered.get(name)}
    task = asyncio.ensure_future(_returned(bound, {**offered, **asks}))
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # asked for, or asyncio complains
    try:
        while not task.done() and (left := clock.left()) > 0:
            await asyncio.wait({task}, timeout=LOOKED_AFTER_S if clock.rests else left)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=GRACE_S)
        raise CallError("too_slow", f"took longer than {timeout_s:g} s, and was ended")
    finally:
        task.cancel()


async def _returned(bound: Bound, offered: Mapping[str, Any]) -> Any:
    returned = bound.call(offered)
    return await returned if isawaitable(returned) else returned


class _Clock:
    """The seconds that are left; it rests while at least one call is under way."""

    def __init__(self, seconds: float) -> None:
        self._left, self._since, self._under_way = seconds, time.monotonic(), 0

    @property
    def rests(self) -> bool:
        return self._under_way > 0

    def left(self) -> float:
        return self._left if self.rests else self._left - (time.monotonic() - self._since)

    def asking(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """`complete` or `embed`, while which it rests."""

        async def asked(*args: Any, **kwargs: Any) -> Any:
            self._left = self.left()
            self._under_way += 1
            try:
                return await ask(*args, **kwargs)
            finally:
                self._under_way -= 1
                self._since = time.monotonic()

        return asked
