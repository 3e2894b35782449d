"""The worker side of `workers.py`: a process that works on chunks until its pipe is closed."""

from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

# What the first chunk needs, while the run's process still prepares.
from evalflows.engine import answer  # noqa: F401
from evalflows.engine.child import receive, send
from evalflows.specs.errors import describe


def work(pipe: Connection) -> None:
    """Work on the chunks that come through the pipe, until it is closed."""
    np.random.seed()  # as `random` does by itself: all would draw the same numbers
    with suppress(BrokenPipeError), pipe:
        while (request := receive(pipe)) is not None:
            _send(pipe, _reply_to(*request))


def _reply_to(function: Any, given: tuple[object, ...]) -> tuple[Any, BaseException | None]:
    try:
        return function(*given), None
    except BaseException as error:
        return None, error


def _send(pipe: Connection, reply: tuple[Any, BaseException | None]) -> None:
    try:
        send(pipe, reply)
    except BrokenPipeError:  # the run's process has ended, and so does this one
        raise
    except Exception:  # an error that cannot be pickled
        send(pipe, (None, RuntimeError(describe(reply[1]) if isinstance(reply[1], Exception) else str(reply[1]))))
