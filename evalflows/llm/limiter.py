"""Adaptive limit of the calls that one connection has in flight in this process: as many as the provider accepts, by
its headers and its answers 429. A refused call is made again by `attempts.py`."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Literal, Self

from evalflows.llm.rate_limits import RateLimit
from evalflows.specs.errors import TRANSIENT, CallError
from evalflows.specs.frozen import dataclass
from evalflows.store.records import LimitChange, now

Outcome = Literal["ok", "rate_limited", "fault"]
"""A call's outcome as far as it affects the width: a fault is a 5xx, a timeout or a dropped connection."""

FIRST_WIDTH = 20
CUT = 0.95
PROBE_AFTER = 100
"""Successful calls at a known ceiling before a higher concurrency is probed: that costs one refusal in a hundred."""
FIRST_HOLD_S, LONGEST_HOLD_S = 0.5, 60.0
HOLD_ON_EMPTY_S = 1.0
"""Longest wait, in seconds, after a successful call whose headers say that the allowance is used up."""


def outcome_of(error: CallError | None) -> Outcome:
    """Return the outcome of a call that ended with this error, or without one."""
    if error is None or error.kind not in TRANSIENT:
        return "ok"
    return "rate_limited" if error.kind == "rate_limited" else "fault"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the width: when, to what, and why."""

    at: datetime
    width: int
    in_flight: int
    reason: LimitChange
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot of one call in flight."""

    episode: int  # in which the call started
    concurrency: int  # calls in flight when it started, itself included
    tokens: float  # estimated


@dataclass(slots=True)
class Turn:
    """A slot of a limiter for a block, which makes one attempt at a call. It is returned with the call's outcome."""

    limiter: "Limiter"
    tokens: float  # estimated
    slot: Slot | None = None
    rate_limit: RateLimit | None = None
    used_tokens: float | None = None

    def note(self, rate_limit: RateLimit, used_tokens: float | None = None) -> None:
        """Note what a response says of the limits, and the tokens really used."""
        self.rate_limit, self.used_tokens = rate_limit, used_tokens

    async def __aenter__(self) -> Self:
        self.slot = await self.limiter.acquire(self.tokens)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self.slot is not None
        failure = error if isinstance(error, CallError) else None
        if failure is not None:
            self.rate_limit = RateLimit(failure.retry_after_s, failure.limit_is_empty)
        self.limiter.release(self.slot, outcome_of(failure), self.rate_limit, self.used_tokens)


class Bucket:
    """A token bucket per minute. Written here because estimates are corrected later, which libraries do not support."""

    def __init__(self, per_minute: float | None, clock: Callable[[], float]) -> None:
        self._rate, self._clock = (per_minute or 0.0) / 60, clock
        self._capacity = max(1.0, self._rate)  # a second's worth may be taken at once
        self._level, self._updated = self._capacity, clock()

    def wait_s(self, amount: float) -> float:
        """Return the seconds until `amount` may be taken; more than a second's worth passes when the bucket is full."""
        if not self._rate:
            return 0.0
        time_now = self._clock()
        self._level = min(self._capacity, self._level + (time_now - self._updated) * self._rate)
        self._updated = time_now
        return max(0.0, (min(amount, self._capacity) - self._level) / self._rate)

    def take(self, amount: float) -> None:
        self._level -= amount


class Limiter:
    """Slots for calls, handed out in the order of the requests. Use it on one event loop only.

    Slow start: the width starts small and grows by one per successful call until a call is refused. Each episode of
    refusals cuts the width once. If more calls were in flight than have succeeded together before, their number is
    taken as the provider's ceiling: the width returns to it within a few rounds, stays there, and probes one more call
    at once after PROBE_AFTER successful calls. If the probe succeeds for a whole round, the ceiling is dropped and the
    width grows as at the start; the same happens after a refusal that the width does not explain. Faults pause growth
    for a round and cut nothing. A refusal at a width of one, with the allowance used up, or again after a cut with a
    stated wait points to a limit other than concurrency: no call then starts for the stated time, else for one that
    doubles.
    """

    def __init__(
        self,
        max_width: int,
        *,
        first: int = FIRST_WIDTH,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.max_width, self._width, self._clock = max_width, min(first, max_width), clock
        self._in_flight = 0
        self._waiting: deque[tuple[asyncio.Future[Slot], float]] = deque()
        self._requests, self._tokens = Bucket(requests_per_minute, clock), Bucket(tokens_per_minute, clock)
        self._episode = 0
        self._ceiling: int | None = None  # calls at once that the provider accepts, if known
        self._proven = 0  # highest concurrency at which a call of this episode succeeded
        self._successes = 0  # since the width changed
        self._streak = 0  # consecutive episodes without a success between them
        self._held_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._lent: int | None = None  # slots lent by a limit over all processes; None without such a limit
        self._drained: list[asyncio.Future[None]] = []
        self.history = deque([Change(now(), self._width, 0, "began")], maxlen=10_000)

    @property
    def width(self) -> int:
        """The maximum number of calls at once, at present."""
        return self._width if self._lent is None else min(self._width, self._lent)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def turn(self, tokens: float = 0.0) -> Turn:
        """Return the block of an attempt at a call of about so many tokens, which waits for a slot."""
        return Turn(self, tokens)

    async def acquire(self, tokens: float = 0.0) -> Slot:
        """Wait for a slot for a call of about so many tokens."""
        waiter: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._waiting.append((waiter, tokens))
        self._admit()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result(), "ok")
            raise

    def release(
        self, slot: Slot, outcome: Outcome, rate_limit: RateLimit | None = None, used_tokens: float | None = None
    ) -> None:
        """Return a slot, with the call's outcome, the provider's rate-limit headers and the tokens really used."""
        was_full = self._in_flight >= self.width
        self._in_flight -= 1
        if used_tokens is not None:
            self._tokens.take(used_tokens - slot.tokens)
        rate_limit = rate_limit or RateLimit()
        if outcome == "rate_limited":
            self._on_refusal(slot, rate_limit)
        elif outcome == "fault":
            self._successes = -self._width
        elif slot.episode == self._episode:
            self._on_success(slot, was_full, rate_limit)
        self._admit()
        self._wake_drained()

    def lend(self, slots: int) -> None:
        """Change the slots lent by a limit over all processes: more if positive, fewer if negative."""
        self._lent = (self._lent or 0) + slots
        self._admit()

    async def drain(self) -> None:
        """Wait until no more calls are in flight than slots are lent."""
        while self._in_flight > (self._lent or 0):
            drained = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained

    def changes(self) -> list[Change]:
        """Return every change so far, including growth still in progress."""
        self._record_growth()
        return list(self.history)

    def _on_refusal(self, slot: Slot, rate_limit: RateLimit) -> None:
        """Start a new episode and cut the width, unless the call started before the last cut."""
        if slot.episode < self._episode:
            return
        self._episode += 1
        self._streak += 1
        self._record_growth()
        before, self._successes = self._width, 0
        self._ceiling = max(1, self._in_flight) if slot.concurrency > self._proven else None
        self._proven = 0
        wait = rate_limit.wait_s
        if rate_limit.is_empty or (self._streak > 1 and wait is not None) or self._width == 1:
            hold = wait if wait is not None else FIRST_HOLD_S * 2.0 ** min(self._streak - 1, 10)
            self._hold(min(hold, LONGEST_HOLD_S))
            self._width = max(1, self._width // 2)
            self._record("refused_waiting", wait)
        else:
            self._width = max(1, min(self._ceiling or before, math.ceil(CUT * before)))
            self._record("refused", wait)

    def _on_success(self, slot: Slot, was_full: bool, rate_limit: RateLimit) -> None:
        self._streak = 0
        self._proven = max(self._proven, slot.concurrency)
        if rate_limit.is_empty and rate_limit.wait_s:
            self._hold(min(rate_limit.wait_s, HOLD_ON_EMPTY_S))
        if not was_full or self._width >= self.max_width:
            return  # a width that is not fully used proves nothing
        self._successes += 1
        if self._ceiling is not None and self._width > self._ceiling and self._successes >= self._width:
            self._ceiling = None  # the probe succeeded for a whole round: the limit is somewhere above
        step = self._step()
        if step:
            self._width, self._successes = min(self.max_width, self._width + step), 0
        if self._width == self.max_width:
            self._record_growth()

    def _step(self) -> int:
        """Return by how much to widen after another success."""
        if self._ceiling is None:
            return 1 if self._successes > 0 else 0
        if self._width < self._ceiling:
            return max(1, (self._ceiling - self._width) // 2) if self._successes >= self._width else 0
        return 1 if self._width == self._ceiling and self._successes >= PROBE_AFTER else 0

    def _hold(self, seconds: float) -> None:
        self._held_until = max(self._held_until, self._clock() + seconds)

    def _admit(self) -> None:
        """Start as many waiting calls as the limits allow."""
        while self._waiting and self._in_flight < self.width:
            waiter, tokens = self._waiting[0]
            if waiter.done():  # cancelled
                self._waiting.popleft()
                continue
            wait = max(self._held_until - self._clock(), self._requests.wait_s(1), self._tokens.wait_s(tokens))
            if wait > 0:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = asyncio.get_running_loop().call_later(wait, self._admit)
                return
            self._waiting.popleft()
            self._requests.take(1)
            self._tokens.take(tokens)
            self._in_flight += 1
            waiter.set_result(Slot(self._episode, self._in_flight, tokens))

    def _wake_drained(self) -> None:
        if self._drained and self._in_flight <= (self._lent or 0):
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            self._drained.clear()

    def _record(self, reason: LimitChange, retry_after_s: float | None = None) -> None:
        self.history.append(Change(now(), self._width, self._in_flight, reason, retry_after_s))

    def _record_growth(self) -> None:
        """Record growth as one entry, however many steps it took."""
        if self._width > self.history[-1].width:
            self._record("grown")
