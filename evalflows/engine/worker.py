"""The worker side of `isolation/process.py`: a process that judges with one evaluator until its pipe closes."""

import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from evalflows.engine.child import message_pipes, receive, send
from evalflows.evaluators.binding import Bound, read_returned
from evalflows.specs.code_versions import fault_text, trace_of
from evalflows.specs.errors import CallError, ErrorKind, describe

Fault = tuple[ErrorKind, str, str | None]
"""Kind, text and trace of an error."""

KILL_DELAY_S = 5.0
"""Seconds after the time limit until an alarm kills this process, if its parent has not. The alarm works even if user
code holds the GIL or the parent is gone."""

_CALLING = threading.Lock()
"""One model call at a time, also from threads of user code: the answers come through one pipe."""


class _ModelCallError(CallError):
    """A model call failed. The parent process has the original error."""


def main() -> None:
    with message_pipes() as (requests, answers):
        _judge(requests, answers)


def _judge(requests: IO[bytes], answers: IO[bytes]) -> None:
    try:
        bound, timeout_s = receive(requests)
    except Exception as error:  # any error of user modules during import
        send(answers, ("raised", ("raised", fault_text(error), trace_of(error))))
        return
    send(answers, ("ready", None))
    while (available := receive(requests)) is not None:
        signal.setitimer(signal.ITIMER_REAL, timeout_s + KILL_DELAY_S)
        reply = _reply_to(bound, available, requests, answers)
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            send(answers, reply)
        except Exception as error:  # a returned object that cannot be pickled
            send(answers, ("raised", ("bad_return", describe(error), None)))
    signal.setitimer(signal.ITIMER_REAL, KILL_DELAY_S)  # for threads that user code left running


def _reply_to(bound: Bound, available: dict[str, Any], requests: IO[bytes], answers: IO[bytes]) -> tuple[str, Any]:
    for name in ("complete", "embed"):
        available[name] = _model_call(name, requests, answers)
    try:
        returned = bound.call(available)
    except _ModelCallError:
        return "raised", None
    except Exception as error:
        return "raised", _fault(error)
    try:
        return "returned", read_returned(bound, returned, available)
    except Exception as error:  # also raised by a property of the user's object
        return "raised", ("bad_return", fault_text(error), trace_of(error))


def _fault(error: Exception) -> Fault:
    """Return kind, text and trace of an exception of user code, as `fault_of` does."""
    if isinstance(error, CallError):
        return error.kind, str(error), error.trace
    if "openai" not in sys.modules:  # none of its errors can have been raised, and importing it takes half a second
        return "raised", fault_text(error), trace_of(error)
    from evalflows.llm.faults import fault_of

    fault = fault_of(error)
    return fault.kind, str(fault), fault.trace


def _model_call(name: str, requests: IO[bytes], answers: IO[bytes]) -> Callable[..., Any]:
    """Return `complete` or `embed`, executed by the parent process."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with _CALLING:
            left = signal.setitimer(signal.ITIMER_REAL, 0)[0]  # waiting for a model does not count
            try:
                send(answers, ("ask", (name, args, kwargs)))
                reply = receive(requests)
            finally:
                signal.setitimer(signal.ITIMER_REAL, left)
        if reply is None:
            raise SystemExit
        kind, content = reply
        if kind == "error":
            raise _ModelCallError(*content)
        return content

    return call


if __name__ == "__main__":
    main()
