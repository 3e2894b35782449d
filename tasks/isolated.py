"""The user's plain code with a time limit, in processes of its own: a thread cannot be ended, a process can."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any

import cloudpickle

from evaluators.call import Bound
from evaluators.preference import Preference
from evaluators.score import Judgement
from llm.faults import fault_of
from specs.errors import CallError, InputError, describe
from tasks.messages import receive, send

MOST_PROCESSES = max(2, os.cpu_count() or 2)

STARTING_S = 60.0
"""Seconds until a new process has imported what it needs."""

Asks = Mapping[str, Callable[..., Any] | None]


def check_movable(bound: Bound) -> None:
    """Raises InputError for an evaluator that cannot be handed to another process."""
    try:
        cloudpickle.dumps(bound)
    except Exception as error:
        why = f"timeout_s: it cannot run in a process of its own ({describe(error)})"
        raise InputError(
            f"evaluator {bound.name!r}: {why}; wanted an async function, or one that holds data only"
        ) from error


class Isolated:
    """An evaluator that judges in other processes, each judgement within `timeout_s` seconds.

    What it asks a model, this process asks for it, and that time does not count.
    """

    def __init__(self, bound: Bound, timeout_s: float) -> None:
        self._bound, self._timeout_s = bound, timeout_s
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._places = threading.BoundedSemaphore(MOST_PROCESSES)

    def judge(self, offered: Mapping[str, Any], asks: Asks) -> list[Judgement | Preference]:
        """What the evaluator says, in this process' shape.

        Raises CallError: `too_slow` where the time is up, else what became of it, in the other process' words.
        """
        needed = ("runs",) if self._bound.level == "pair" else ()  # by them it is read what was returned
        wanted = {name: offered[name] for name in {*self._bound.asked, *needed} if name in offered}
        with self._places:
            process = self._taken()
            try:
                said = process.ask({name: value for name, value in wanted.items() if name not in asks}, asks)
            except BaseException:
                process.end()
                raise
            self._idle.put(process)
        if isinstance(said, BaseException):
            raise said
        return said

    def _taken(self) -> "_Process":
        with contextlib.suppress(Empty):
            while True:
                process = self._idle.get_nowait()
                if process.is_there:
                    return process
                process.end()
        return _Process(self._bound, self._timeout_s)

    def close(self) -> None:
        """End the processes that wait."""
        with contextlib.suppress(Empty):
            while True:
                self._idle.get_nowait().end()


class _Process:
    """One process that has the evaluator, and judges one thing at a time.

    It leads a group of its own, so that with it ends what the evaluator has begun.
    """

    def __init__(self, bound: Bound, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        self._popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "tasks.judging_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._in, self._out = _pipe(self._popen.stdin), _pipe(self._popen.stdout)
        try:
            send(self._in, (bound, timeout_s))
            kind, content = self._answer(time.monotonic() + STARTING_S, f"took longer than {STARTING_S:g} s to begin")
            if kind == "raised":
                raise CallError(*content)
        except BaseException:
            self.end()
            raise

    @property
    def is_there(self) -> bool:
        """Whether it has not ended by itself."""
        return self._popen.poll() is None

    def ask(self, offered: Mapping[str, Any], asks: Asks) -> list[Judgement | Preference] | BaseException:
        """What it says; an exception is what was raised in it, or in what it asked."""
        left = self._timeout_s
        failed: list[BaseException] = []
        send(self._in, dict(offered))
        while True:
            began = time.monotonic()
            kind, content = self._answer(began + left, f"took longer than {self._timeout_s:g} s, and was ended")
            left -= time.monotonic() - began
            if kind == "said":
                return list(content)
            if kind == "raised":  # through it may have come what we raised before
                return failed[-1] if content is None else CallError(*content)
            send(self._in, _asked(asks, content, failed))

    def _answer(self, until: float, late: str) -> Any:
        found = receive(self._out, until)
        if found is not None:
            return found
        if time.monotonic() >= until:
            raise CallError("too_slow", late)
        raise CallError("raised", f"its process ended with {self._popen.wait(timeout=5)}")

    def end(self) -> None:
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):  # what was not written yet has no reader
                pipe.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _asked(asks: Asks, content: tuple[str, Any, Any], failed: list[BaseException]) -> tuple[str, Any]:
    """What `complete` or `embed` says, or its error, for the other process."""
    name, args, kwargs = content
    try:
        ask = asks[name]
        assert ask is not None
        return "answer", ask(*args, **kwargs)
    except Exception as error:
        failed.append(error)
        fault = fault_of(error)
        return "error", (fault.kind, str(fault))
