"""The event loop, in its own thread, that runs all model calls and the user's async functions."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")

_lock = threading.Lock()
_ends: ContextVar[tuple[threading.Event, ...]] = ContextVar("evalflows_ends", default=())
"""Of the blocks of `ends_with` around this context, set once they have ended early."""


def start(coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Start a coroutine on the loop with the caller's context variables.

    Raise CancelledError in what a block of `ends_with` has left behind.
    """
    if _is_stopped():
        coroutine.close()
        raise CancelledError
    return asyncio.run_coroutine_threadsafe(coroutine, _running())


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the loop and wait for it from another thread. Interrupting the wait cancels it."""
    future = start(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def is_here() -> bool:
    """Return whether the caller runs on the loop, where it must not wait for it."""
    try:
        return asyncio.get_running_loop() is _running()
    except RuntimeError:
        return False


def call(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a plain function on the loop; for objects that may only be used on one event loop."""

    async def called() -> Result:
        return function(*arguments)

    return run(called())


def soon(function: Callable[..., object], *arguments: Any) -> None:
    """Schedule a plain function on the loop, even after the end of `ends_with`."""
    _running().call_soon_threadsafe(function, *arguments)


@contextmanager
def ends_with() -> Iterator[Callable[[], None]]:
    """End with the block if it raises, or when the yielded function is called: cancel everything that runs on the loop,
    and refuse what the block's threads would start.

    Both get CancelledError. The block's threads are those that run in a copy of its context.
    """
    ended = threading.Event()

    def end() -> None:
        ended.set()
        soon(lambda: [task.cancel() for task in asyncio.all_tasks(_running())])

    outer = _ends.set((*_ends.get(), ended))
    try:
        yield end
    except BaseException:
        end()
        raise
    finally:
        _ends.reset(outer)


def raise_if_stopped() -> None:
    """Raise CancelledError if a block of `ends_with` around this has ended early, in work that runs nothing on the
    loop."""
    if _is_stopped():
        raise CancelledError


def _is_stopped() -> bool:
    return any(ended.is_set() for ended in _ends.get())


def ends_work(error: BaseException) -> bool:
    """Return whether an exception that passes the user's code ends the run: an interrupt, or the end of its task.

    Any other is the user's own, also a CancelledError of a task that their code has cancelled itself.
    """
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return True
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # on a thread without a loop
        task = None
    return _is_stopped() or (task is not None and task.cancelling() > 0)


def at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Close something on the loop when the process ends; what takes longer than a second ends with the process."""

    def closed() -> None:
        with suppress(Exception):
            start(close()).result(1.0)

    atexit.register(closed)


def _running() -> asyncio.AbstractEventLoop:
    with _lock:
        return _started()


@cache
def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="evalflows-calls", daemon=True).start()
    return loop
