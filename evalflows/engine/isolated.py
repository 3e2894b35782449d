"""User code in processes of its own, which can be ended."""

import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from queue import Empty, SimpleQueue
from typing import Any

import cloudpickle

from evalflows.engine.child import receive, send, start_child
from evalflows.evaluators.binding import Bound
from evalflows.evaluators.score import Judgement, Preference
from evalflows.llm.batches import Deferred
from evalflows.llm.endpoint_errors import fault_of
from evalflows.specs.errors import CallError, ErrorKind, InputError, describe

MAX_PROCESSES = max(2, os.cpu_count() or 2)

STARTUP_TIMEOUT_S = 60.0
"""Seconds that a new process has to import what it needs."""

ModelCalls = Mapping[str, Callable[..., Any] | None]


def check_picklable(bound: Bound) -> None:
    """Raise InputError for an evaluator that cannot be sent to another process."""
    try:
        cloudpickle.dumps(bound)
    except Exception as error:
        problem = f"timeout_s: it cannot be sent to another process ({describe(error)})"
        raise InputError(
            f"evaluator {bound.name!r}: {problem}; wanted an async function, or one that holds only data"
        ) from error


class IsolatedEvaluator:
    """An evaluator that judges in other processes, each judgement within `timeout_s` seconds.

    Model calls are made by this process on its behalf, and their time does not count.
    """

    def __init__(self, bound: Bound, timeout_s: float) -> None:
        self._bound, self._timeout_s = bound, timeout_s
        self._idle: SimpleQueue[_IsolatedProcess] = SimpleQueue()
        self._places = threading.BoundedSemaphore(MAX_PROCESSES)
        weakref.finalize(self, _end_all, self._idle)

    def judge(self, available: Mapping[str, Any], calls: ModelCalls) -> list[Judgement | Preference]:
        """Judge in another process, and return its scores or preferences.

        Raise CallError: `too_slow` if the time is up, otherwise the error reported by the other process.
        """
        needed = ("runs",) if self._bound.scope == "pair" else ()  # to read what was returned
        requested = {name: available[name] for name in {*self._bound.asked, *needed} if name in available}
        with self._places:
            process = self._take()
            try:
                result = process.judge({name: value for name, value in requested.items() if name not in calls}, calls)
            except BaseException:
                process.end()
                raise
            self._idle.put(process)
        if isinstance(result, BaseException):
            raise result
        return result

    def _take(self) -> "_IsolatedProcess":
        with suppress(Empty):
            while True:
                process = self._idle.get_nowait()
                if process.is_alive:
                    return process
                process.end()
        return _IsolatedProcess(self._bound, self._timeout_s)

    def close(self) -> None:
        """End the idle processes."""
        _end_all(self._idle)


def _end_all(idle: "SimpleQueue[_IsolatedProcess]") -> None:
    with suppress(Empty):
        while True:
            idle.get_nowait().end()


class _IsolatedProcess:
    """One process that holds the evaluator, and judges one subject at a time.

    It leads its own process group, so that killing it also kills what the evaluator has started.
    """

    def __init__(self, bound: Bound, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pipe, there = Pipe()
        self._popen = start_child("evalflows.engine.worker", [there])
        try:
            send(self._pipe, (bound, timeout_s))
            kind, content = self._receive(
                time.monotonic() + STARTUP_TIMEOUT_S, f"took longer than {STARTUP_TIMEOUT_S:g} s to start"
            )
            if kind == "raised":
                raise _fault(*content)
        except BaseException:
            self.end()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._popen.poll() is None

    def judge(self, available: Mapping[str, Any], calls: ModelCalls) -> list[Judgement | Preference] | BaseException:
        """Return the judgements, or the exception raised by the evaluator or by a model call."""
        left = self._timeout_s
        failed: list[BaseException] = []
        send(self._pipe, dict(available))
        while True:
            began = time.monotonic()
            kind, content = self._receive(began + left, f"took longer than {self._timeout_s:g} s and was stopped")
            left -= time.monotonic() - began
            if kind == "returned":
                return list(content)
            if kind == "raised":  # None: the error is that of a model call
                return failed[-1] if content is None else _fault(*content)
            send(self._pipe, _reply(calls, content, failed))

    def _receive(self, until: float, late: str) -> Any:
        message = receive(self._pipe, until)
        if message is not None:
            return message
        if time.monotonic() >= until:
            raise CallError("too_slow", late)
        raise CallError("raised", f"its process exited with {self._popen.wait(timeout=5)}")

    def end(self) -> None:
        if self._popen.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        self._pipe.close()


def _fault(kind: ErrorKind, text: str, trace: str | None) -> CallError:
    return CallError(kind, text, trace=trace)


def _reply(calls: ModelCalls, content: tuple[str, Any, Any], failed: list[BaseException]) -> tuple[str, Any]:
    """Call `complete` or `embed` for the other process, and return the answer or the error."""
    name, args, kwargs = content
    try:
        call = calls[name]
        assert call is not None
        return "answer", call(*args, **kwargs)
    except Deferred as deferred:
        failed.append(deferred)
        return "error", ("expired", "a batch will answer")
    except Exception as error:
        failed.append(error)
        fault = fault_of(error)
        return "error", (fault.kind, str(fault))
