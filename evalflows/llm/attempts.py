"""Attempts at one call of a model or an application: which errors are tried again in place, and after what pause."""

import asyncio
import random
from datetime import datetime, timedelta
from types import TracebackType

from evalflows.llm.ledger import Calls, current
from evalflows.specs.errors import TRANSIENT, CallError, ErrorKind
from evalflows.specs.escaping import print_note

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
LONGEST_REASON = 120
SAID_FROM_S = 60.0
"""A wait of so many seconds that an endpoint asks for is said: the run would seem to hang."""

RETRYABLE: frozenset[ErrorKind] = TRANSIENT | {"truncated"}
"""A retry in place may give a shorter answer than a truncated one; if it does not, a later run will not help either."""


class Attempts:
    """The attempts at one call. Each is a block, which ends the loop around it with its result:

        attempts = Attempts(4, who)
        while True:
            async with attempts:
                return await call()

    The block swallows a CallError that another attempt may cure, and pauses before it begins again. Any other error,
    and that of the last attempt, is raised, with the number of attempts made. `who` names the endpoint, for the note
    about a long wait that it asks for; it waits `most_s` at most.
    """

    __slots__ = ("_asked_s", "_most", "_most_s", "_reason", "_who", "made")

    def __init__(self, most: int, who: str, most_s: float) -> None:
        self._most, self._who, self._most_s, self.made = most, who, most_s, 0
        self._asked_s: float | None = None  # the wait that the endpoint asked for
        self._reason = ""  # of the wait

    async def __aenter__(self) -> None:
        if self.made:
            # Here the last error is gone, and with it the frames that hold what was received.
            seconds = pause_s(self.made, self._asked_s, self._most_s)
            calls = recorder.calls if (recorder := current()) else Calls()
            if self._asked_s is not None and self._asked_s > SAID_FROM_S and calls.says_wait(self._who, seconds):
                asks = f"{self._who} asks to wait {in_words(self._asked_s)} ({self._reason})"
                again = f"{datetime.now() + timedelta(seconds=seconds):%H:%M}"
                print_note(f"{asks}; its calls are made again in {seconds:.0f} s, at {again}")
            with calls.waiting(seconds):
                await asyncio.sleep(seconds)
        self.made += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, CallError):
            return False
        error.attempts, self._asked_s = self.made, error.retry_after_s
        self._reason = " ".join(str(error).split())[:LONGEST_REASON]
        return error.kind in RETRYABLE and self.made < self._most


def in_words(seconds: float) -> str:
    """Return a wait in seconds, or in hours if it is that long."""
    return f"{seconds:.0f} s" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def pause_s(attempt: int, retry_after_s: float | None, most_s: float) -> float:
    """Return the seconds to wait after an attempt (from 1): as the provider asks, else exponential; with jitter.

    It is never more than `most_s` that the provider asks for.
    """
    if retry_after_s is not None:
        return min(most_s, retry_after_s + random.uniform(0, 0.1 * retry_after_s))
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.5)
