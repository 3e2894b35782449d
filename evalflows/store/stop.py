"""That nobody waits for a result any more, told to the thread that works on it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StoppedError(Exception):
    """Work that was ended early, since nobody waits for its result any more."""


class Stop:
    """Set once, by any thread, when work is to end: the client has gone, or the server is stopping."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._callbacks: dict[object, Callable[[], object]] = {}

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set it, and call what is registered, in this thread."""
        with self._lock:
            self._is_set = True
            callbacks, self._callbacks = [*self._callbacks.values()], {}
        for call in callbacks:
            call()

    @contextmanager
    def on_stop(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` once if this is set before the block ends; at once if it is set already.

        It is called by the thread that sets this, so it must be quick and raise nothing.
        """
        key = object()
        with self._lock:
            is_set = self._is_set
            if not is_set:
                self._callbacks[key] = callback
        if is_set:
            callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.pop(key, None)
