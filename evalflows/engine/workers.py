"""Run user code over many items: sync and async functions, in processes of their own where a time limit or a crash
must cost one judgement only.

Rules hold the GIL, so that threads would take turns. A process gets chunks, which are ids, and reads and writes the
store itself. Rules of the user are judged so only if the spec says so: they may depend on what their process has done
before.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from heapq import heappop, heappush
from inspect import isawaitable
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any, TypeVar, cast

import cloudpickle

from evalflows.engine.child import receive, send, start_child
from evalflows.engine.chunks import CHUNKS_AT_ONCE
from evalflows.engine.prepare import Prepared
from evalflows.evaluators.binding import Bound
from evalflows.evaluators.score import Judgement, Preference
from evalflows.llm.faults import fault_of
from evalflows.specs.errors import CallError, ErrorKind, InputError, describe
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.target import TargetSpec
from evalflows.targets import ended_within

Result = TypeVar("Result")

MANY_JUDGEMENTS = 50_000
"""Judgements from which processes pay: they take a second to start."""

KEEP_MEMORY = {"MALLOC_TOP_PAD_": str(64 << 20)}
"""Bytes of freed memory that glibc keeps. Giving back the memory of each block of answers and taking it again takes a
thirtieth of the time."""

ENDED_WITHIN_S = 5.0
"""Seconds after which processes that were told to end are killed; only user code can ignore it for so long."""


def is_quick(prepared: Prepared[Any]) -> bool:
    """Whether no answers are made but by looking them up, and all evaluators are rules without a time limit."""
    judges = [judge for evaluator in prepared.evaluators for judge in evaluator.all]
    return all(target.kind == "recorded" for target in targets_of(prepared.spec)) and not any(
        judge.connection or judge.bound.is_async or judge.spec.timeout_s for judge in judges
    )


def targets_of(spec: Any) -> Sequence[TargetSpec]:
    """Return the targets of an experiment; what judges what is there has none."""
    return spec.targets if isinstance(spec, ExperimentSpec) else ()


def pays(prepared: Prepared[Any], n_subjects: int, *, is_ours: bool = True) -> bool:
    """Whether the chunks of a run are worked on in processes: if its spec says so, or if it is faster and safe.

    It is safe if all that they call `is_ours`, as its evaluators must be. Raise InputError if the spec says so of a run
    that calls models.
    """
    kind, evaluators = prepared.spec.task_runner.kind, prepared.evaluators
    if kind == "processes":
        check_quick(prepared)
        return True
    is_faster = is_quick(prepared) and n_subjects * len(evaluators) >= MANY_JUDGEMENTS and cores() > 1
    return is_faster and is_ours and all(one.is_ours for one in evaluators) and kind == "threads"


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


class _Threads(Executor):
    """At most `width` threads, which end when there is nothing to do.

    They are daemons, unlike those of ThreadPoolExecutor: after an interrupt, a call of the user's that hangs must not
    keep the process alive.
    """

    def __init__(self, width: int) -> None:
        self._width, self._running = width, 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._lock, self._numbers = threading.Lock(), count()

    def submit(self, function: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        future: Future[Result] = Future()
        with self._lock:
            self._waiting.append((future, partial(function, *args, **kwargs)))
            if self._running == self._width:
                return future
            self._running += 1
        threading.Thread(target=self._work, name=f"evalflows-items_{next(self._numbers)}", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)


Item = TypeVar("Item")

Work = Callable[[Item], Coroutine[Any, Any, None]]
"""Handles one item and stores its result itself. For a sync function it never awaits."""


QUICK_S = 0.002
"""If an item takes less, a single thread is enough."""

WORKER_CHECK_INTERVAL_S, MAX_CHECK_INTERVAL_S = 0.01, 0.1
"""Intervals at which the speed of the first thread is checked: ever longer, since each check interrupts it."""


QUICK_CHUNKS_AT_ONCE = 2
"""Chunks without model calls that are worked on at a time: more would only wait for the GIL, with rows in memory."""


class Workers:
    """`width` workers for one stage of experiments, shared by all their chunks in this process.

    Chunks are served in order of arrival. With equal shares all chunks would end at the same time, and nothing would be
    in flight while the next stage starts.

    Async work is awaited on the event loop; sync work runs on threads that take items from one queue. A slow function
    keeps `width` threads busy. A quick one gets a single thread: because of the GIL, more would only wait for each
    other.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._threads = _Threads(width)
        self._places = _Places(width)
        self._turns = count()

    async def run(self, work: Work[Item], items: Iterable[Item], *, is_async: bool) -> None:
        """Handle every item. Raise the first exception of `work`, after all workers have ended."""
        queue: SimpleQueue[Item] = SimpleQueue()
        for item in items:
            queue.put(item)
        n_workers = min(self.width, queue.qsize())
        if is_async:
            turn = next(self._turns)
            jobs: list[Any] = [self._draw_async(work, queue, turn) for _ in range(n_workers)]
        else:
            jobs = await self._on_threads(work, queue, n_workers)
        try:
            results = await asyncio.gather(*jobs, return_exceptions=True)
        except asyncio.CancelledError:
            with suppress(Empty):  # threads go on with the item they are at
                while True:
                    queue.get_nowait()
            raise
        for error in results:
            if isinstance(error, BaseException):
                raise error

    async def call_on_thread(self, function: Callable[[Item], Result], argument: Item) -> Result:
        """Call a sync function from async work, on one of the threads. Raise what it raises."""

        def call() -> tuple[Result | None, BaseException | None]:
            try:
                return function(argument), None
            except BaseException as error:  # as a value: a StopIteration in a future would never be delivered
                return None, error

        running = asyncio.get_running_loop()
        result, error = await running.run_in_executor(self._threads, copy_context().run, call)
        if error is not None:
            raise error
        return cast("Result", result)

    async def _on_threads(
        self, work: Work[Item], queue: "SimpleQueue[Item]", n_workers: int
    ) -> list["asyncio.Future[None]"]:
        """Start one worker thread, and the others once the first proves slow."""
        running, items = asyncio.get_running_loop(), queue.qsize()

        def start() -> "asyncio.Future[None]":
            return running.run_in_executor(self._threads, copy_context().run, _draw, work, queue)

        if not n_workers:
            return []
        first, began, interval = start(), running.time(), WORKER_CHECK_INTERVAL_S
        while n_workers > 1 and not first.done():
            await asyncio.wait([first], timeout=interval)
            interval = min(2 * interval, MAX_CHECK_INTERVAL_S)
            handled = items - queue.qsize() - 1  # without the current one
            if (running.time() - began) > handled * QUICK_S and not queue.empty():
                return [first, *(start() for _ in range(n_workers - 1))]
        return [first]

    async def _draw_async(self, work: Work[Item], queue: "SimpleQueue[Item]", turn: int) -> None:
        while not queue.empty():
            await self._places.take(turn)
            try:
                await work(queue.get_nowait())
            except Empty:
                return
            finally:
                self._places.give()


class _Places:
    """A semaphore that serves the lowest turn first."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    async def take(self, turn: int) -> None:
        if self._free:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (turn, next(self._arrivals), place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.give()
            raise

    def give(self) -> None:
        while self._waiting:
            _, _, place = heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


def _draw(work: Work[Item], queue: "SimpleQueue[Item]") -> None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return
        run_sync(work(item))


def run_sync(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, without an event loop, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    coroutine.close()
    raise RuntimeError("sync work must not await")


TIMEOUT_CHECK_INTERVAL_S = 0.1
"""Seconds between two checks of a judgement that waits for a model."""


async def call_within(timeout_s: float, bound: Bound, available: Mapping[str, Any]) -> Any:
    """Call an async evaluator. Raise CallError `too_slow` if it takes longer than `timeout_s` seconds.

    The clock is paused during model calls, which may queue behind others.
    """
    clock = _Clock(timeout_s)
    calls = {name: clock.pausing(available[name]) for name in ("complete", "embed") if available.get(name)}

    def left_s() -> float:
        left = clock.left()
        return TIMEOUT_CHECK_INTERVAL_S if clock.is_paused and left > 0 else left

    return await ended_within(timeout_s, _returned(bound, {**available, **calls}), left_s)


async def _returned(bound: Bound, available: Mapping[str, Any]) -> Any:
    returned = bound.call(available)
    return await returned if isawaitable(returned) else returned


class _Clock:
    """Counts down the seconds left; paused while at least one model call is in flight."""

    def __init__(self, seconds: float) -> None:
        self._left, self._since, self._in_flight = seconds, time.monotonic(), 0

    @property
    def is_paused(self) -> bool:
        return self._in_flight > 0

    def left(self) -> float:
        return self._left if self.is_paused else self._left - (time.monotonic() - self._since)

    def pausing(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Wrap `complete` or `embed` so that the clock is paused during a call."""

        async def paused(*args: Any, **kwargs: Any) -> Any:
            self._left = self.left()
            self._in_flight += 1
            try:
                return await call(*args, **kwargs)
            finally:
                self._in_flight -= 1
                self._since = time.monotonic()

        return paused


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
    except Exception as error:
        failed.append(error)
        fault = fault_of(error)
        return "error", (fault.kind, str(fault))
