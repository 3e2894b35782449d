"""Not asking what is down: a circuit breaker."""

import threading
import time
from collections import deque
from collections.abc import Callable

from specs.errors import NOT_ATTEMPTED, UNREACHABLE, CallError, ErrorKind

COUNTED: frozenset[ErrorKind] = UNREACHABLE | {"bad_request"}
"""Kinds of error that speak of what is asked, not of the item it is asked about."""

TRIALS = 3
"""So often in a row it may be found down before it is given up for this run."""


class Breaker:
    """Opens when more than half of the last `window` items failed; the first half of a window opens nothing.

    While it is open, nothing is let through; after a pause one item is, as a trial. If that succeeds the breaker is
    closed again, else it stays open for twice the pause. Safe to use from several threads.
    """

    def __init__(self, window: int, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._window, self._pause_s, self._clock = window, pause_s, clock
        self._failed: deque[bool] = deque(maxlen=window)
        self._opened = 0  # times in a row
        self._open_until: float | None = None
        self._on_trial = False
        self._why = ""
        self._lock = threading.Lock()

    @property
    def gave_up(self) -> bool:
        """Whether it is of no use to wait for it."""
        return self._opened >= TRIALS

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def enter(self) -> bool:
        """Let an item through; returns whether it is a trial. Raises CallError while the breaker is open."""
        if self._open_until is None:  # as nearly always: no thread need wait for another
            return False
        with self._lock:
            if self._open_until is None:
                return False
            if self._on_trial or self.gave_up or self._clock() < self._open_until:
                raise CallError("stopped", f"not attempted: {self._why}", attempts=0)
            self._on_trial = True
            return True

    def leave(self, is_trial: bool, kind: str | None, error: str | None) -> None:
        """Say how an item that was let through went: the kind of its error, and the error; None where it went well."""
        failed = kind in COUNTED
        if not failed and not is_trial and self._open_until is None and kind not in NOT_ATTEMPTED:
            self._failed.append(False)
            return
        with self._lock:
            if is_trial:
                self._on_trial = False
            if kind in NOT_ATTEMPTED:
                return  # nobody was asked: it tells nothing
            if is_trial:
                if failed:
                    self._open(self._why)
                else:
                    self._close()
            elif self._open_until is None:
                self._failed.append(failed)
                last = tuple(self._failed)
                count, lost = len(last), sum(last)
                if 2 * count >= self._window and 2 * lost > count:
                    self._open(f"{lost} of the last {count} failed, the last one by: {error}")

    def _open(self, why: str) -> None:
        self._why = why
        self._open_until = self._clock() + self._pause_s * 2.0**self._opened
        self._opened += 1

    def _close(self) -> None:
        self._open_until, self._opened = None, 0
        self._failed.clear()
