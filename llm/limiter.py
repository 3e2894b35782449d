"""How many calls are under way at once on a connection, in this process."""

import asyncio
from collections import deque
from typing import Literal, Protocol

from specs.errors import TRANSIENT, CallError

Outcome = Literal["ok", "rate_limited", "fault"]
"""How a call went, as far as it bears on the width: a fault is a 5xx, a time-out, or a cut connection."""


def outcome_of(error: CallError | None) -> Outcome:
    """How a call went that ended with this error, or with none."""
    if error is None or error.kind not in TRANSIENT:
        return "ok"
    return "rate_limited" if error.kind == "rate_limited" else "fault"


class Limiter(Protocol):
    """Used on one event loop only."""

    @property
    def width(self) -> int:
        """Most calls at once, for now."""
        ...

    @property
    def in_flight(self) -> int: ...

    async def acquire(self) -> None:
        """Wait for a place."""
        ...

    def release(self, outcome: Outcome, retry_after_s: float | None = None) -> None:
        """Give the place back, and say how the call went."""
        ...


class FixedLimiter:
    """A limiter whose width never changes. Places go to those who wait in the order in which they came."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def width(self) -> int:
        return self._width

    @property
    def in_flight(self) -> int:
        return self._in_flight

    async def acquire(self) -> None:
        if self._in_flight < self._width and not self._waiting:
            self._in_flight += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place  # whoever sets it has counted us already
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release("ok")
            raise

    def release(self, outcome: Outcome, retry_after_s: float | None = None) -> None:
        self._in_flight -= 1
        while self._waiting and self._in_flight < self._width:
            place = self._waiting.popleft()
            if not place.done():
                self._in_flight += 1
                place.set_result(None)
