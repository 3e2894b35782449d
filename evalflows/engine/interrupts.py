"""How a run is interrupted.

Python raises KeyboardInterrupt in whatever the main thread is doing. Inside a finalizer, or in a library that catches
everything, the exception is lost and the run would continue. So the handler also remembers the interrupt, and that is
checked before the first call and later.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Noting:
    """A handler of signals that remembers that one came, as long as it is in place, and then does what `then` does."""

    def __init__(self, then: Callable[[int, FrameType | None], Any]) -> None:
        self._then, self.has_come = then, False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.has_come = True
        self._then(number, frame)


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Remember Ctrl-C during the block, in addition to its usual handling. Raise KeyboardInterrupt if one came before
    that the handler in place remembers."""
    raise_if_pressed()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, before if isinstance(before, Noting) else Noting(before))
    try:
        yield
        raise_if_pressed()
    finally:
        signal.signal(signal.SIGINT, before)


def raise_if_pressed() -> None:
    """Raise KeyboardInterrupt if a handler in place remembers an interrupt."""
    handlers = map(signal.getsignal, (signal.SIGINT, signal.SIGTERM))
    if any(isinstance(handler, Noting) and handler.has_come for handler in handlers):
        raise KeyboardInterrupt
