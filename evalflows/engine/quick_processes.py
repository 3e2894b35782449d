"""Processes for experiments that call no model.

Rules hold the GIL, so that threads would take turns. A process gets chunks, which are ids, and reads and writes the
store itself.
"""

# Rules of the user are judged so only if the spec says so: they may depend on what their process has done before.

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any, cast

from evalflows.engine.child import receive, send, start_child
from evalflows.engine.chunks import CHUNKS_AT_ONCE
from evalflows.engine.prepare import Prepared
from evalflows.engine.workers import Result
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec

MANY_JUDGEMENTS = 50_000
"""Judgements from which processes pay: they take a second to start."""

KEEP_MEMORY = {"MALLOC_TOP_PAD_": str(64 << 20)}
"""Bytes of freed memory that glibc keeps. Giving back the memory of each block of answers and taking it again takes a
thirtieth of the time."""

ENDED_WITHIN_S = 5.0
"""Seconds after which processes that were told to end are killed; only user code can ignore it for so long."""

QUICK_CHUNKS_AT_ONCE = 2
"""Chunks without model calls that are worked on at a time: more would only wait for the GIL, with rows in memory."""


def is_quick(prepared: Prepared[Any]) -> bool:
    """Return whether no answers are made but by looking them up, and all evaluators are rules without a time limit."""
    judges = [judge for evaluator in prepared.evaluators for judge in evaluator.all]
    targets = prepared.spec.targets if isinstance(prepared.spec, ExperimentSpec) else ()  # others judge what is there
    return all(target.kind == "recorded" for target in targets) and not any(
        judge.connection or judge.bound.is_async or judge.spec.timeout_s for judge in judges
    )


def pays(prepared: Prepared[Any], n_subjects: int, *, is_ours: bool = True) -> bool:
    """Return whether the chunks of a run are worked on in processes: if its spec says so, or if it is faster and safe.

    It is safe if all that they call `is_ours`, as its evaluators must be. Raise InputError if the spec says so of a run
    that calls models.
    """
    kind, evaluators = prepared.spec.task_runner.kind, prepared.evaluators
    if kind == "processes":
        check_quick(prepared)
        return True
    is_faster = is_quick(prepared) and n_subjects * len(evaluators) >= MANY_JUDGEMENTS and cores() > 1
    return is_faster and is_ours and all(evaluator.is_ours for evaluator in evaluators) and kind == "threads"


def check_quick(prepared: Prepared[Any]) -> None:
    """Raise InputError for a run in processes of this machine that calls models."""
    if not is_quick(prepared):
        wanted = "wanted recorded answers or items of production, and rules without models or time limits"
        raise InputError(f"task_runner: got processes, {wanted}; or kind threads, dask or ray")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class QuickProcesses:
    """Some processes, by default one per core, at most as many as there are chunks at once."""

    def __init__(self, count: int | None = None) -> None:
        count = count or min(cores(), CHUNKS_AT_ONCE)
        pipes = [Pipe() for _ in range(count)]
        # One imports what they need, and the others are forked from it: elsewhere, that is not safe after such imports.
        shared = count if sys.platform == "linux" else 1
        self._started = [
            start_child("evalflows.engine.quick_launcher", [there for _, there in some], KEEP_MEMORY)
            for some in (pipes[first : first + shared] for first in range(0, count, shared))
        ]
        self._idle: SimpleQueue[Connection] = SimpleQueue()  # a process works on one chunk at a time
        for here, _ in pipes:
            self._idle.put(here)

    def work(self, function: Callable[..., Result], *work: object) -> Result:
        """Call the function in a process, or here if that has ended. Raise what the function raises.

        It has ended if it was killed, or if another run of this program ended the processes of all. If this run was
        interrupted, the loop starts nothing for it, so that the function raises CancelledError here.
        """
        pipe = self._idle.get()
        try:
            send(pipe, (function, work))
            reply = receive(pipe)
        except OSError:  # the process has ended
            reply = None
        finally:
            self._idle.put(pipe)
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


def _end(started: subprocess.Popen[bytes]) -> None:
    """Kill the group: its leader waits until the others have ended, so that none is left as a zombie."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or only a zombie is left (macOS)
            os.killpg(started.pid, number)
        with suppress(subprocess.TimeoutExpired):
            started.wait(ENDED_WITHIN_S)
            return
