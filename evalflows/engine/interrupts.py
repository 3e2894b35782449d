"""How a run is interrupted.

Python raises KeyboardInterrupt in whatever the main thread is doing. Inside a finalizer, or in a library that catches
everything, the exception is lost and the run would continue. So the interrupt is also recorded, and checked before the
first call and later.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed = threading.Event()


def note_interrupt() -> None:
    """Record an interrupt. A handler that raises KeyboardInterrupt calls this first."""
    _pressed.set()


def forget_interrupts() -> None:
    """Drop a recorded interrupt: what it was meant for has ended."""
    _pressed.clear()


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """Record Ctrl-C during the block, in addition to its usual handling. Raise KeyboardInterrupt if one was recorded
    before.
    """
    raise_if_pressed()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def note(number: int, frame: FrameType | None) -> None:
        note_interrupt()
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
        raise_if_pressed()
    finally:
        signal.signal(signal.SIGINT, before)
        forget_interrupts()


def raise_if_pressed() -> None:
    """Raise KeyboardInterrupt if an interrupt was recorded."""
    if _pressed.is_set():
        raise KeyboardInterrupt
