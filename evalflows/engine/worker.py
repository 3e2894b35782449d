"""The worker side of `workers.IsolatedEvaluator`: a process that judges with one evaluator until its pipe closes."""

import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from evalflows.engine.child import given_pipe, receive, send
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


def main(pipe: Connection) -> None:
    try:
        bound, timeout_s = receive(pipe)
    except Exception as error:  # any error of user modules during import
        send(pipe, ("raised", ("raised", fault_text(error), trace_of(error))))
        return
    send(pipe, ("ready", None))
    while (available := receive(pipe)) is not None:
        signal.setitimer(signal.ITIMER_REAL, timeout_s + KILL_DELAY_S)
        reply = _reply_to(bound, available, pipe)
        try:
            send(pipe, reply)
        except Exception as error:  # a returned object that cannot be pickled
            send(pipe, ("raised", ("bad_return", describe(error), None)))
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.setitimer(signal.ITIMER_REAL, KILL_DELAY_S)  # for threads that user code left running


def _reply_to(bound: Bound, available: dict[str, Any], pipe: Connection) -> tuple[str, Any]:
    for name in ("complete", "embed"):
        available[name] = _model_call(name, pipe)
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
    if not {"openai", "anthropic", "google.genai"} & sys.modules.keys():  # none of their errors can have been raised
        return "raised", fault_text(error), trace_of(error)
    from evalflows.llm.endpoint_errors import fault_of

    fault = fault_of(error)
    return fault.kind, str(fault), fault.trace


def _model_call(name: str, pipe: Connection) -> Callable[..., Any]:
    """Return `complete` or `embed`, executed by the parent process."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with _CALLING:
            send(pipe, ("ask", (name, args, kwargs)))
            left = signal.setitimer(signal.ITIMER_REAL, 0)[0]  # waiting for a model does not count
            try:
                reply = receive(pipe)
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
    main(given_pipe(sys.argv[1]))
