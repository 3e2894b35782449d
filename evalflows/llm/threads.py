"""Threads that the code of an item starts belong to it: calls of recorded clients there count, and budgets see them.

A context reaches no thread by itself, but for `asyncio.to_thread`. Where it is lost all the same, as in a thread that
was there before, the calls of all items that are under way are unknown, not zero.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, wraps
from typing import Any

from evalflows.llm.ledger import current


@cache
def carry_recordings() -> None:
    """Let threads and thread pools, as of now, run what an item's code gives them in its context. Other code's is left
    alone. There is no hook for that in Python 3.11, so two methods of the standard library are replaced, once.
    """
    start: Callable[..., None] = threading.Thread.start
    submit: Callable[..., Future[Any]] = ThreadPoolExecutor.submit

    @wraps(start)
    def start_within(self: threading.Thread) -> None:
        if current() is not None:
            self.run = _within(self.run)  # type: ignore[method-assign]
        start(self)

    @wraps(submit)
    def submit_within(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        return submit(self, function if current() is None else _within(function), *args, **kwargs)

    threading.Thread.start = start_within  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_within  # type: ignore[method-assign, assignment]


def _within(function: Callable[..., Any]) -> Callable[..., Any]:
    context = copy_context()

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return context.run(function, *args, **kwargs)

    return run
