"""A time limit for the user's async code, which the calls that it asks for do not use up."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from inspect import isawaitable
from typing import Any

from evaluators.call import Bound
from specs.errors import CallError


async def within(timeout_s: float, bound: Bound, offered: Mapping[str, Any]) -> Any:
    """What an async evaluator returns. Raises CallError, `too_slow`, where it takes longer than `timeout_s` seconds.

    While a model is asked for it, its time stands still: it may wait there for others. What it makes of being ended,
    an answer or an error of its own, comes too late.
    """
    late = CallError("too_slow", f"took longer than {timeout_s:g} s, and was ended")
    try:
        async with asyncio.timeout(timeout_s) as limit:
            paused = _Paused(limit)
            asks = {name: paused.asking(offered[name]) for name in ("complete", "embed") if offered.get(name)}
            returned = bound.call({**offered, **asks})
            returned = await returned if isawaitable(returned) else returned
    except Exception as error:
        if not limit.expired():
            raise
        raise late from error
    if limit.expired():
        raise late
    return returned


class _Paused:
    """A limit that rests while at least one call is under way."""

    def __init__(self, limit: asyncio.Timeout) -> None:
        self._limit = limit
        self._under_way = 0
        self._left = 0.0

    def asking(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*args: Any, **kwargs: Any) -> Any:
            self._begin()
            try:
                return await ask(*args, **kwargs)
            finally:
                self._end()

        return asked

    def _begin(self) -> None:
        self._under_way += 1
        if self._under_way == 1 and (until := self._limit.when()) is not None:
            self._left = until - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def _end(self) -> None:
        self._under_way -= 1
        with suppress(RuntimeError):  # of a task that has outlived the judgement
            if not self._under_way:
                self._limit.reschedule(asyncio.get_running_loop().time() + self._left)
