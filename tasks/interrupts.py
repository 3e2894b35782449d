"""Notice Ctrl-C even if Python drops it.

Python raises KeyboardInterrupt in whatever the main thread is doing. Inside a finalizer, or in a library that catches
everything, the exception is lost and the run would continue. So the interrupt is also recorded, and checked later.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed = threading.Event()


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Record interrupts during the block, in addition to their usual handling."""
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
    """Raise KeyboardInterrupt if an interrupt was recorded."""
    if _pressed.is_set():
        raise KeyboardInterrupt
