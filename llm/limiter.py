"""How many calls are under way at once on a connection, in this process: as many as its provider takes."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from llm.told import Told
from specs.errors import TRANSIENT, CallError
from store.records import now

Outcome = Literal["ok", "rate_limited", "fault"]
"""How a call went, as far as it bears on the width: a fault is a 5xx, a time-out, or a cut connection."""

FIRST_WIDTH = 20
CUT = 0.95
PROBE_AFTER = 100
"""Calls that go well at the width that was found, before one more is tried: so one in a hundred is refused for it."""
FIRST_HOLD_S, LONGEST_HOLD_S = 0.5, 60.0
HOLD_ON_EMPTY_S = 1.0
"""Most seconds to wait where a provider says of a call that went well that it was the last for now."""


def outcome_of(error: CallError | None) -> Outcome:
    """How a call went that ended with this error, or with none."""
    if error is None or error.kind not in TRANSIENT:
        return "ok"
    return "rate_limited" if error.kind == "rate_limited" else "fault"


@dataclass(frozen=True, slots=True)
class Change:
    """The width from a moment on, and why."""

    at: datetime
    width: int
    in_flight: int
    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """One call under way."""

    episode: int  # which it began in
    level: int  # how many were under way when it began, itself among them
    tokens: float  # that it was taken to need


class Bucket:
    """So many a minute. What was taken is corrected when it is known: hence our own, as libraries cannot give back."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        self._rate, self._clock = (per_minute or 0.0) / 60, clock
        self._most = max(1.0, self._rate)  # a second's worth may come at once
        self._level, self._at = self._most, clock()

    def wait_s(self, amount: float) -> float:
        """Seconds until so much may be taken; more than a second's worth is let through when the bucket is full."""
        if not self._rate:
            return 0.0
        at = self._clock()
        self._level = min(self._most, self._level + (at - self._at) * self._rate)
        self._at = at
        return max(0.0, (min(amount, self._most) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        self._level -= amount


class Limiter:
    """Places for calls, given in the order in which they were asked for. Used on one event loop only.

    It begins narrow and grows by a call for each that goes well (slow start) until one is refused. An episode of
    refusals cuts it once. A call that was refused when more were under way than had gone well before tells what the
    provider takes: from the cut it comes back to there within some rounds, stays, and after PROBE_AFTER good calls
    tries one more; where that is taken for a whole round the limit has moved, and it grows as at the start. It does
    so too after a refusal that the width does not explain. Faults stop growth for a round, and cut nothing. Calls that
    are refused right after a cut are about another limit than the width: then none begins for as long as the provider
    says, else, at one call at once, for a time that doubles.
    """

    def __init__(
        self,
        most: int,
        *,
        first: int = FIRST_WIDTH,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.most, self._width, self._clock = most, min(first, most), clock
        self._in_flight = 0
        self._waiting: deque[tuple[asyncio.Future[Place], float]] = deque()
        self._requests, self._tokens = Bucket(requests_per_minute, clock), Bucket(tokens_per_minute, clock)
        self._episode = 0
        self._ceiling: int | None = None  # how many the provider takes, if that is known
        self._proven = 0  # how many were under way when a call of this episode began that went well
        self._clean = 0  # good calls since the width changed
        self._streak = 0  # episodes without a good call between them
        self._held_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lent: int | None = None  # places that a limit over all processes has given us; None without one
        self._drained: list[asyncio.Future[None]] = []
        self.history = deque([Change(now(), self._width, 0, "began")], maxlen=10_000)

    @property
    def width(self) -> int:
        """Most calls at once, for now."""
        return self._width if self._lent is None else min(self._width, self._lent)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    async def acquire(self, tokens: float = 0.0) -> Place:
        """Wait for a place for a call of about so many tokens."""
        waiter: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiter, tokens))
        self._admit()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result(), "ok")
            raise

    def release(
        self, place: Place, outcome: Outcome, told: Told | None = None, used_tokens: float | None = None
    ) -> None:
        """Give a place back, say how its call went, what the provider told, and how many tokens it really took."""
        was_full = self._in_flight >= self.width
        self._in_flight -= 1
        if used_tokens is not None:
            self._tokens.take(used_tokens - place.tokens)
        told = told or Told()
        if outcome == "rate_limited":
            self._refused(place, told)
        elif outcome == "fault":
            self._clean = -self._width
        elif place.episode == self._episode:
            self._went_well(place, was_full, told)
        self._admit()
        self._tell_drained()

    def lend(self, places: int) -> None:
        """A limit over all processes lets this one have so many more at once; below 0, so many fewer."""
        self._lent = (self._lent or 0) + places
        self._admit()

    async def drained(self) -> None:
        """Return when no more calls are under way than were lent."""
        while self._in_flight > (self._lent or 0):
            drained = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained

    def told_history(self) -> list[Change]:
        """Every change so far, growth that still goes on among them."""
        self._note_growth()
        return list(self.history)

    def _refused(self, place: Place, told: Told) -> None:
        """Refusals of calls that began before the last cut are of the same episode."""
        if place.episode < self._episode:
            return
        self._episode += 1
        self._streak += 1
        self._note_growth()
        before, self._clean = self._width, 0
        self._ceiling = max(1, self._in_flight) if place.level > self._proven else None
        self._proven = 0
        if told.is_empty or (self._streak > 1 and told.wait_s is not None) or self._width == 1:
            wait = told.wait_s if told.wait_s is not None else FIRST_HOLD_S * 2.0 ** min(self._streak - 1, 10)
            self._hold(min(wait, LONGEST_HOLD_S))
            self._width = max(1, self._width // 2)
            self._note("refused, waiting", told.wait_s)
        else:
            self._width = max(1, min(self._ceiling or before, math.ceil(CUT * before)))
            self._note("refused", told.wait_s)

    def _went_well(self, place: Place, was_full: bool, told: Told) -> None:
        self._streak = 0
        self._proven = max(self._proven, place.level)
        if told.is_empty and told.wait_s:
            self._hold(min(told.wait_s, HOLD_ON_EMPTY_S))
        if not was_full or self._width >= self.most:
            return  # a width that is not used proves nothing
        self._clean += 1
        if self._ceiling is not None and self._width > self._ceiling and self._clean >= self._width:
            self._ceiling = None  # the one more was taken for a whole round: the limit is somewhere above
        step = self._step()
        if step:
            self._width, self._clean = min(self.most, self._width + step), 0
        if self._width == self.most:
            self._note_growth()

    def _step(self) -> int:
        """How many more calls at once, after another good one."""
        if self._ceiling is None:
            return 1 if self._clean > 0 else 0
        if self._width < self._ceiling:
            return max(1, (self._ceiling - self._width) // 2) if self._clean >= self._width else 0
        return 1 if self._width == self._ceiling and self._clean >= PROBE_AFTER else 0

    def _hold(self, seconds: float) -> None:
        self._held_until = max(self._held_until, self._clock() + seconds)

    def _admit(self) -> None:
        """Let calls begin, as many as may."""
        while self._waiting and self._in_flight < self.width:
            waiter, tokens = self._waiting[0]
            if waiter.done():  # whoever waited was cancelled
                self._waiting.popleft()
                continue
            wait = max(self._held_until - self._clock(), self._requests.wait_s(1), self._tokens.wait_s(tokens))
            if wait > 0:
                self._wake_in(wait)
                return
            self._waiting.popleft()
            self._requests.take(1)
            self._tokens.take(tokens)
            self._in_flight += 1
            waiter.set_result(Place(self._episode, self._in_flight, tokens))

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._admit)

    def _tell_drained(self) -> None:
        if self._drained and self._in_flight <= (self._lent or 0):
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            self._drained.clear()

    def _note(self, reason: str, retry_after_s: float | None = None) -> None:
        self.history.append(Change(now(), self._width, self._in_flight, reason, retry_after_s))

    def _note_growth(self) -> None:
        """Growth is one entry, however many steps it took."""
        if self._width > self.history[-1].width:
            self._note("grown")
