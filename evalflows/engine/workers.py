"""Processes that look up recorded answers and judge them by rules, so that each core has one.

Rules hold the GIL, so that threads would take turns. A process gets chunks, which are ids, and reads and writes the
store itself. Rules of the user are judged so only if the spec says so: they may depend on what their process has done
before.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from evalflows.execution.chunks import CHUNKS_AT_ONCE
from evalflows.execution.isolation.child import start_child
from evalflows.execution.isolation.messages import receive, send
from evalflows.execution.prepared import PreparedExperiment
from evalflows.specs.errors import InputError

Result = TypeVar("Result")

MANY_JUDGEMENTS = 50_000
"""Judgements from which processes pay: they take a second to start."""

KEEP_MEMORY = {"MALLOC_TOP_PAD_": str(64 << 20)}
"""Bytes of freed memory that glibc keeps. Giving back the memory of each block of answers and taking it again takes a
thirtieth of the time."""

ENDED_WITHIN_S = 5.0
"""Seconds after which processes that were told to end are killed; only user code can ignore it for so long."""


def is_quick(prepared: PreparedExperiment) -> bool:
    """Whether all answers are recorded, and all evaluators are rules without a time limit."""
    judges = [judge for evaluator in prepared.evaluators for judge in evaluator.all]
    return all(target.kind == "recorded" for target in prepared.spec.targets) and not any(
        judge.connection or judge.bound.is_async or judge.spec.timeout_s for judge in judges
    )


def pays(prepared: PreparedExperiment, n_examples: int) -> bool:
    """Whether an experiment's chunks are worked on in processes: if its spec says so, or if it is faster and safe.

    Raise InputError if the spec says so of an experiment that calls models.
    """
    spec = prepared.spec
    if spec.task_runner.kind == "processes":
        if not is_quick(prepared):
            wanted = "wanted recorded answers and rules without models or time limits; or kind threads, dask or ray"
            raise InputError(f"task_runner: got processes for an experiment with other targets or evaluators, {wanted}")
        return True
    judgements = n_examples * spec.repetitions * len(spec.targets) * len(prepared.evaluators)
    is_ours = all(evaluator.is_ours for evaluator in prepared.evaluators)
    is_faster = is_quick(prepared) and judgements >= MANY_JUDGEMENTS and _cores() > 1
    return is_faster and is_ours and spec.task_runner.kind == "threads"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Process:
    """This side of a process, which works on one chunk at a time."""

    def __init__(self) -> None:
        here, self.other_end = socket.socketpair()
        with here:
            self._requests, self._answers = here.makefile("wb"), here.makefile("rb")

    def ask(self, function: Callable[..., Any], *work: object) -> tuple[Any, BaseException | None] | None:
        """Return the function's result, or what it raises; None if the process has ended."""
        try:
            send(self._requests, (function, work))
            return cast("tuple[Any, BaseException | None] | None", receive(self._answers))
        except (OSError, ValueError):  # ValueError: the pipe is closed
            return None

    def close(self) -> None:
        for pipe in (self._requests, self._answers):
            with suppress(OSError):  # what it did not read
                pipe.close()


class QuickProcesses:
    """Some processes, by default one per core, at most as many as there are chunks at once."""

    def __init__(self, count: int | None = None) -> None:
        count = count or min(_cores(), CHUNKS_AT_ONCE)
        self._all = [_Process() for _ in range(count)]
        shared = count if sys.platform == "linux" else 1  # elsewhere, it is not safe to fork after such imports
        self._started = [_start(self._all[first : first + shared]) for first in range(0, count, shared)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._all:
            self._idle.put(process)

    def work(self, function: Callable[..., Result], *work: object) -> Result:
        """Call the function in a process, or here if that has ended. Raise what the function raises.

        It has ended if it was killed, or if another run of this program ended the processes of all. If this run was
        interrupted, the loop is stopped, so that the function raises CancelledError here.
        """
        process = self._idle.get()
        try:
            reply = process.ask(function, *work)
        finally:
            self._idle.put(process)
        if reply is None:
            return function(*work)
        result, error = reply
        if error is not None:
            raise error
        return cast("Result", result)

    def end(self) -> None:
        """Kill the processes. They write whole files, and what is not in one is redone."""
        for started in self._started:
            _end(started)
        for process in self._all:
            process.close()


def _start(processes: Sequence[_Process]) -> subprocess.Popen[bytes]:
    """Start processes together: one imports what they need, and the others are forked from it."""
    pipes = [process.other_end.fileno() for process in processes]
    started = start_child("evalflows.execution.quick_launcher", pipes, KEEP_MEMORY)
    for process in processes:
        process.other_end.close()
    return started


def _end(started: subprocess.Popen[bytes]) -> None:
    """Kill the group: its leader waits until the others have ended, so that none is left as a zombie."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or only a zombie is left (macOS)
            os.killpg(started.pid, number)
        with suppress(subprocess.TimeoutExpired):
            started.wait(ENDED_WITHIN_S)
            return


_current: QuickProcesses | None = None
_lock = threading.Lock()


def begin(count: int | None = None) -> None:
    """Start the processes without waiting, if this process has none."""
    global _current
    with _lock:
        _current = _current or QuickProcesses(count)


def current() -> QuickProcesses | None:
    """Return the processes that were begun and have not ended."""
    return _current


def end() -> None:
    """End the processes, if there are any."""
    global _current
    with _lock:
        ended, _current = _current, None
    if ended is not None:
        ended.end()


@contextmanager
def ended_by_errors() -> Iterator[None]:
    """End the processes if the block raises: what they were begun for does not come."""
    try:
        yield
    except BaseException:
        end()
        raise
