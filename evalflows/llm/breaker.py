"""A breaker stops the calls of a connection that fails again and again."""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from evalflows.specs.errors import NOT_ATTEMPTED, UNREACHABLE, CallError, ErrorKind

COUNTED: frozenset[ErrorKind] = UNREACHABLE | {"bad_request"}
"""Kinds of error that concern the target or evaluator that is called, not the item."""

TRIALS = 3
"""Consecutive openings after which the breaker gives up for this run."""

_DIFFERS = re.compile(r"""'[^']*'|"[^"]*"|\w*\d[\w-]*""")
"""What may differ between errors of one way to fail: what is quoted, numbers and ids."""

_reserving = threading.Lock()


class Breaker:
    """Opens when more than half of the last `window` items failed, once at least half a window has been seen.

    While open, it admits no items; after a pause it admits one item as a trial. If the trial succeeds, the
    breaker closes, else it stays open for twice the pause. It gives up for this run if as many as the `first` items all
    failed in the same way, and no later attempt would help. Thread-safe.
    """

    def __init__(
        self, window: int, pause_s: float, clock: Callable[[], float] = time.monotonic, first: int = 0
    ) -> None:
        self._window, self._pause_s, self._clock = window, pause_s, clock
        self._first, self._alike = first, list[str]()  # failures that are alike, from the beginning
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
        """Admit an item; return whether it is a trial. Raise CallError while the breaker is open."""
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
        if self._first:
            self._compare_first(kind, error or "")
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

    def _compare_first(self, kind: str | None, error: str) -> None:
        says_nothing = kind is None or kind in UNREACHABLE | NOT_ATTEMPTED
        with self._lock:
            self._alike.append(f"{kind} {_DIFFERS.sub('…', error)}")
            if says_nothing or self._alike[-1] != self._alike[0]:
                self._first = 0
            elif len(self._alike) == self._first:
                self._first, self._opened, self._open_until = 0, TRIALS, self._clock()
                self._reason = f"stopped: the first {len(self._alike)} answers all failed with: {error}"

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
        admitting = [breaker for breaker in breakers if breaker.admits_trial]
        if any(breaker._on_trial or breaker._reserved_by not in (None, owner) for breaker in admitting):
            return False
        for breaker in admitting:
            breaker._reserved_by = owner
        return True


def give_back(breakers: Iterable[Breaker], owner: object) -> None:
    """End the owner's reservations of trials that did not take place."""
    with _reserving:
        for breaker in breakers:
            if breaker._reserved_by is owner:
                breaker._reserved_by = None
