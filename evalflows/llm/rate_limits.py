"""Adaptive concurrency limit of one connection in this process: as many calls at once as the provider accepts, by
its headers and its answers 429; and a breaker that stops calls of what is down. A refused call is made again by
attempts.py.
"""

import asyncio
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, Self

from evalflows.specs.errors import NOT_ATTEMPTED, TRANSIENT, UNREACHABLE, CallError, ErrorKind
from evalflows.store.records import LimitChange, now

COUNTED: frozenset[ErrorKind] = UNREACHABLE | {"bad_request"}
"""Kinds of error that concern the target or evaluator that is called, not the item."""

TRIALS = 3
"""Consecutive openings after which the breaker gives up for this run."""


class Breaker:
    """Opens when more than half of the last `window` items failed, once at least half a window has been seen.

    While open, it admits no items; after a pause it admits one item as a trial. If the trial succeeds, the
    breaker closes, else it stays open for twice the pause. Thread-safe.
    """

    def __init__(self, window: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._pause_s, self._clock = window, pause_s, clock
        self._failed: deque[bool] = deque(maxlen=window)
        self._opened = 0  # consecutive openings
        self._open_until: float | None = None
        self._on_trial = False
        self._reserved_by: object | None = None
        self._reason = ""
        self._lock = threading.Lock()

    @property
    def gave_up(self) -> bool:
        """Whether it has given up for this run."""
        return self._opened >= TRIALS

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    @property
    def pause_left_s(self) -> float:
        """Seconds until an item is admitted; 0 if it is closed, or has given up."""
        until = self._open_until
        return 0.0 if until is None or self.gave_up else max(0.0, until - self._clock())

    @property
    def admits_trial(self) -> bool:
        """Whether it is open and its pause is over, so that one item decides whether it closes."""
        return self.is_open and not self.gave_up and self.pause_left_s == 0.0

    def enter(self) -> bool:
        """Admit an item; return whether it is a trial. Raises CallError while the breaker is open."""
        if self._open_until is None:  # the usual case needs no lock
            return False
        with self._lock:
            if self._open_until is None:  # another thread has closed it
                return False  # type: ignore[unreachable]
            if self._on_trial or self.gave_up or self._clock() < self._open_until:
                raise CallError("stopped", self._reason, attempts=0)
            self._on_trial = True
            return True

    def leave(self, is_trial: bool, kind: str | None, error: str | None, *, called: bool = False) -> None:
        """Record the result of an admitted item: its error's kind and text; None if it succeeded.

        The user's code that raises after it has `called` a model counts too: a bug there would be paid for every item.
        """
        failed = kind in COUNTED or (called and kind == "raised")
        if not failed and not is_trial and self._open_until is None and kind not in NOT_ATTEMPTED:
            self._failed.append(False)
            return
        with self._lock:
            if is_trial:
                self._on_trial = False
            if kind in NOT_ATTEMPTED:
                return  # nothing was called, so nothing is known
            if is_trial:
                if failed:
                    self._open(self._reason)
                else:
                    self._close()
            elif self._open_until is None:
                self._failed.append(failed)
                window = tuple(self._failed)  # a copy: other threads append without the lock
                count, n_failed = len(window), sum(window)
                if 2 * count >= self._window and 2 * n_failed > count:
                    why = "no connection" if kind == "connection" else f"most recently with: {error}"
                    self._open(f"{n_failed} of the last {count} failed, {why}")

    def _open(self, reason: str) -> None:
        self._reason = reason
        self._open_until = self._clock() + self._pause_s * 2.0**self._opened
        self._opened += 1
        self._reserved_by = None

    def _close(self) -> None:
        self._open_until, self._opened, self._reserved_by = None, 0, None
        self._failed.clear()


def reserve(breakers: Sequence[Breaker], owner: object) -> bool:
    """Reserve the trials that these breakers admit; return whether none of them is another owner's.

    Either all are reserved or none is, so that two owners never wait for each other.
    """
    with _reserving:
        admitting = [one for one in breakers if one.admits_trial]
        if any(one._on_trial or one._reserved_by not in (None, owner) for one in admitting):
            return False
        for one in admitting:
            one._reserved_by = owner
        return True


def give_back(breakers: Iterable[Breaker], owner: object) -> None:
    """End the owner's reservations of trials that did not take place."""
    with _reserving:
        for one in breakers:
            if one._reserved_by is owner:
                one._reserved_by = None


_reserving = threading.Lock()


LONGEST_CREDIBLE_S = 7 * 86400.0
"""The longest wait, in seconds, that a provider may ask for: a longer one is no answer to how soon to try again."""
LONGEST_PERIOD = 40
"""Characters of a period; a longer one is no period, and might be infinite as a number."""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PERIOD = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Seconds to wait, if the provider said so, and whether its current allowance is used up."""

    wait_s: float | None = None
    is_empty: bool = False


def read_rate_limit(headers: Mapping[str, str]) -> RateLimit:
    """Read Retry-After, `retry-after-ms` and `x-ratelimit-*`. What cannot be parsed or is not credible is ignored."""
    retry_after = retry_after_s(headers)
    empty = [kind for kind in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{kind}") == "0"]
    periods = [_credible(period_s(headers.get(f"x-ratelimit-reset-{kind}", ""))) for kind in empty]
    resets = [reset for reset in periods if reset is not None]
    return RateLimit(retry_after if retry_after is not None else max(resets, default=None), bool(empty))


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait; None if it does not say, or nothing credible."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            if (seconds := _credible(float(headers[name]) * unit)) is not None:
                return seconds
    return _credible(_until(headers.get("retry-after", "")))


def _credible(seconds: float | None) -> float | None:
    """Return a wait; None for one that is negative, not finite, or longer than a week."""
    return seconds if seconds is not None and 0.0 <= seconds <= LONGEST_CREDIBLE_S else None


def period_s(text: str) -> float | None:
    """Return a period such as `6m0s`, `120ms` or `1.5` in seconds; None for anything else."""
    text = text.strip().lower()
    if len(text) > LONGEST_PERIOD:
        return None
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not _PERIOD.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", text))


def _until(date: str) -> float | None:
    """Return the seconds until an HTTP date; None if it is not one."""
    try:
        return max(0.0, (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


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

    async def drained(self) -> None:
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
                self._wake_in(wait)
                return
            self._waiting.popleft()
            self._requests.take(1)
            self._tokens.take(tokens)
            self._in_flight += 1
            waiter.set_result(Slot(self._episode, self._in_flight, tokens))

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._admit)

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
