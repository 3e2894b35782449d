"""The event loop, in a thread of its own, on which every model call and every async function of the user's runs."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")

_lock = threading.Lock()
_stopped = threading.Event()
_loop: asyncio.AbstractEventLoop | None = None
_closing: list[Callable[[], Coroutine[Any, Any, None]]] = []


def start(coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Begin a coroutine on the loop, with the context variables of the caller. Raises CancelledError after `stop`."""
    if _stopped.is_set():
        coroutine.close()
        raise CancelledError
    return asyncio.run_coroutine_threadsafe(coroutine, _running())


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the loop, and wait for it in another thread. A wait that is broken off ends it."""
    future = start(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def call(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a plain function on the loop, where what is used on one event loop only must be called."""

    async def called() -> Result:
        return function(*arguments)

    return run(called())


def soon(function: Callable[..., object], *arguments: Any) -> None:
    """Have a plain function called on the loop, also when everything else there was stopped."""
    _running().call_soon_threadsafe(function, *arguments)


def stop() -> None:
    """End everything that is under way on the loop, and whatever would begin, until `allow`: it gets CancelledError."""
    _stopped.set()
    if _loop is not None:
        _loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(_loop)])


def at_end(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have something that lives on the loop closed when the process ends."""
    _closing.append(close)


def allow() -> None:
    """Let coroutines begin again."""
    _stopped.clear()


def _running() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="evalflows-calls", daemon=True).start()
        return _loop


@atexit.register
def _close() -> None:
    """What is not closed in two seconds goes with the process."""
    if _loop is not None and _closing:
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(_closed(), _loop).result(2.0)


async def _closed() -> None:
    await asyncio.gather(*(close() for close in _closing), return_exceptions=True)
