"""Trying again in place, where a fault may pass."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from llm.faults import pause_s
from specs.errors import TRANSIENT, CallError, ErrorKind

Result = TypeVar("Result")

TRIED_AGAIN: frozenset[ErrorKind] = TRANSIENT | {"truncated"}
"""An answer that was cut off may come shorter the next time; if it never does, a later run will not help."""


async def attempted(once: Callable[[], Awaitable[Result]], most: int) -> tuple[Result, int]:
    """The result of the first attempt that succeeds, and its number from 1.

    Raises the last CallError, with the number of attempts made: the first that no other attempt can cure, or the one
    of the last attempt.
    """
    for attempt in range(1, most + 1):
        try:
            return await once(), attempt
        except CallError as error:
            error.attempts = attempt
            if error.kind not in TRIED_AGAIN or attempt == most:
                raise
            await asyncio.sleep(pause_s(attempt, error.retry_after_s))
    raise AssertionError("at least one attempt is made")
