"""Retry a call in place when the fault may be transient, and wait in between."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

from evalflows.specs.errors import TRANSIENT, CallError, ErrorKind

Result = TypeVar("Result")

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_WAIT_S = 600.0
"""Longest wait that a provider may ask for: a run that has to wait longer is better stopped and resumed."""

RETRYABLE: frozenset[ErrorKind] = TRANSIENT | {"truncated"}
"""A retry in place may give a shorter answer than a truncated one; if it does not, a later run will not help either."""


async def retry(call: Callable[[], Awaitable[Result]], max_attempts: int) -> tuple[Result, int]:
    """Return the result of the first successful attempt, and that attempt's number (from 1).

    Raises CallError, with the number of attempts made, after the first error that is not retryable or after the last
    attempt.
    """
    for attempt in range(1, max_attempts + 1):
        try:
            return await call(), attempt
        except CallError as error:
            error.attempts = attempt
            if error.kind not in RETRYABLE or attempt == max_attempts:
                raise
            with _noted(seconds := pause_s(attempt, error.retry_after_s)):
                await asyncio.sleep(seconds)
    raise AssertionError(f"max_attempts: got {max_attempts}, wanted at least 1")


_waiting: dict[int, float] = {}  # until when, by an id of the wait
_ids = count()


@contextmanager
def _noted(seconds: float) -> Iterator[None]:
    """Note during a block that a call waits for its next attempt."""
    number = next(_ids)
    _waiting[number] = time.monotonic() + seconds
    try:
        yield
    finally:
        del _waiting[number]


def calls_waiting() -> tuple[int, float]:
    """Return how many calls of this process wait for their next attempt, and the seconds until the first of them."""
    ends = [*_waiting.copy().values()]
    return len(ends), max(0.0, min(ends) - time.monotonic()) if ends else 0.0


def pause_s(attempt: int, retry_after_s: float | None) -> float:
    """Return the seconds to wait after an attempt (from 1): as the provider asks, else exponential; with jitter."""
    if retry_after_s is not None:
        return min(LONGEST_WAIT_S, retry_after_s + random.uniform(0, 0.1 * retry_after_s))
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)
