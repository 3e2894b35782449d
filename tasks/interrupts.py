"""Hearing a person's Ctrl-C, wherever it falls.

Python raises KeyboardInterrupt in whatever the main thread is doing; inside the callback of a finalizer, or in a block
of a library that catches everything, it is dropped, and the run would go on. So it is noted too, and asked for.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed = threading.Event()


@contextmanager
def heard() -> Iterator[None]:
    """While the block lasts, an interrupt is noted besides what it does otherwise."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        _pressed.set()
        before(number, frame)

    _pressed.clear()
    signal.signal(signal.SIGINT, note)
    try:
        yield
        raise_if_pressed()
    finally:
        signal.signal(signal.SIGINT, before)
        _pressed.clear()


def raise_if_pressed() -> None:
    """Raises KeyboardInterrupt where an interrupt was noted, and dropped since."""
    if _pressed.is_set():
        raise KeyboardInterrupt
