"""The other side of tasks/isolated.py: a process that judges with one evaluator until nobody asks it any more.

What the user's code prints goes to the error stream, and it has nothing to read, as the pipes are for messages.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from evaluators.call import Bound
from evaluators.returned import read_returned
from specs.errors import CallError, ErrorKind, describe
from tasks.messages import receive, send

AFTER = 5.0
"""Seconds after the time limit in which who asked should have ended this process. The system ends it then, also in
the midst of code that lets no other run, and where nobody is left to end it."""

_ASKING = threading.Lock()
"""One question at a time, also where the user's code has threads: the answers come by one pipe."""


class _OtherSideError(CallError):
    """What was asked of a model failed. The other process has the error as it was."""


def main() -> None:
    with os.fdopen(os.dup(0), "rb", buffering=0) as asked, os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = sys.stderr
        _judge(asked, answers)


def _judge(asked: IO[bytes], answers: IO[bytes]) -> None:
    try:
        bound, timeout_s = receive(asked)
    except Exception as error:  # whatever the user's modules raise while they are imported
        send(answers, ("raised", ("raised", describe(error))))
        return
    send(answers, ("ready", None))
    while (offered := receive(asked)) is not None:
        signal.setitimer(signal.ITIMER_REAL, timeout_s + AFTER)
        said = _said(bound, offered, asked, answers)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            send(answers, said)
        except Exception as error:  # what an object holds that is no data
            send(answers, ("raised", ("bad_return", describe(error))))
    signal.setitimer(signal.ITIMER_REAL, AFTER)  # for what the user's code has begun, and not ended


def _said(bound: Bound, offered: dict[str, Any], asked: IO[bytes], answers: IO[bytes]) -> tuple[str, Any]:
    for name in ("complete", "embed"):
        offered[name] = _asking(name, asked, answers)
    try:
        returned = bound.call(offered)
    except _OtherSideError:
        return "raised", None
    except Exception as error:
        return "raised", _fault(error)
    try:
        return "said", read_returned(bound, returned, offered)
    except Exception as error:  # also what a property of the user's object raises
        return "raised", ("bad_return", describe(error))


def _fault(error: Exception) -> tuple[ErrorKind, str]:
    """Of which kind an exception of the user's code is, and what it says; as `fault_of` has it."""
    if isinstance(error, CallError):
        return error.kind, str(error)
    if "openai" not in sys.modules:  # then none of its errors was raised, and to import it takes half a second
        return "raised", describe(error)
    from llm.faults import fault_of

    fault = fault_of(error)
    return fault.kind, str(fault)


def _asking(name: str, asked: IO[bytes], answers: IO[bytes]) -> Callable[..., Any]:
    """`complete` or `embed` of the process that asked."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        with _ASKING:
            left = signal.setitimer(signal.ITIMER_REAL, 0)[0]  # to wait for a model does not count
            try:
                send(answers, ("ask", (name, args, kwargs)))
                reply = receive(asked)
            finally:
                signal.setitimer(signal.ITIMER_REAL, left)
        if reply is None:
            raise SystemExit
        kind, content = reply
        if kind == "error":
            raise _OtherSideError(*content)
        return content

    return ask


if __name__ == "__main__":
    main()
