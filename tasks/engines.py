"""The engine that runs the chunks of a flow: its own threads, or the processes of a cluster of Dask or Ray.

prefect-dask and prefect-ray are imported only here, and only if a spec asks for them. Pickled as they are, Prefect's
tasks and flows bring along the code of their functions and whatever it mentions.
"""

import copy
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from inspect import Signature, signature
from typing import Any, ParamSpec, TypeVar

from prefect import Flow, Task
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture, wait
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.chunks import CHUNKS_AT_ONCE
from evalflows.engine.interrupts import raise_if_pressed
from evalflows.engine.quick_processes import cores
from evalflows.specs import hints
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.frozen import dataclass
from evalflows.specs.running import TaskRunnerSpec
from evalflows.tasks.retries import retries_of

Given = ParamSpec("Given")
Work = TypeVar("Work")

_OWN: Any = ThreadPoolTaskRunner(max_workers=1)

CONNECTED_WITHIN_S = 10
"""Seconds that the scheduler of a running cluster may take to answer."""

POLL_S = 0.1

Steps = Sequence[PrefectFuture[Any]]


@dataclass(frozen=True)
class _Named:
    """The function of a task, by the name of the task."""

    module: str
    name: str

    @property
    def function(self) -> Any:
        return getattr(import_module(self.module), self.name).fn

    @property
    def __signature__(self) -> Signature:  # Prefect names parameters by it
        return signature(self.function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)


def chunk_task(task: Task[Given, Work], spec: AnySpec) -> Task[Given, Work]:
    """Return the task for the chunks of a run, with its retries, and so that the run's engine can send it."""
    task = task.with_options(**retries_of(spec))
    if not spec.task_runner.is_elsewhere:
        return task
    named, sent = _Named(task.fn.__module__, task.fn.__name__), copy.copy(task)
    sent.fn = named
    vars(sent)["__wrapped__"] = named
    return sent


def light_context(context: FlowRunContext, runner: Any) -> FlowRunContext:
    """Return the context of a flow run whose tasks run on an engine: it is sent with each of them.

    It has no parameters, which may hold the rows of a dataset, and not the code of the flow.
    """
    flow = Flow(fn=_nothing, name=context.flow.name if context.flow else None, task_runner=_OWN)
    flow_run = context.flow_run.model_copy(update={"parameters": {}}) if context.flow_run else None
    changes = {"task_runner": runner, "flow": flow, "flow_run": flow_run, "parameters": {}}
    return context.model_copy(update=changes)


def _nothing() -> None:
    """Stand in for the function of a flow in the processes of an engine, which do not call it."""


@contextmanager
def chunks_on(spec: TaskRunnerSpec, after: Steps = ()) -> Iterator[None]:
    """Let what is submitted in this block run on an engine. Raise InputError if its cluster cannot be reached.

    If it has other processes, wait first for the steps that this one began: what they spend is then known.
    """
    context = FlowRunContext.get()
    if not spec.is_elsewhere or context is None or context.flow_run is None:
        yield
        return
    while not_done(after, POLL_S):
        raise_if_pressed()
    with _engine(spec) as runner, light_context(context, runner):
        yield


def not_done(steps: Steps, timeout: float) -> bool:
    """Wait until all steps have ended, at most so many seconds. Return whether one has not.

    Raise IncompleteError if a chunk killed the processes that worked on it.
    """
    if not any(_is_elsewhere(step) for step in steps):
        return bool(wait([*steps], timeout=timeout).not_done)
    deadline = time.monotonic() + timeout
    while any(not _has_ended(step) for step in steps):
        if time.monotonic() >= deadline:
            return True
        time.sleep(POLL_S)
    for step in steps:
        _raise_if_killed(step)
    return False


def ended_work(steps: Steps) -> list[Any]:
    """Return what the tasks returned that have ended in other processes: what they have done."""
    states = [_final_state(step) for step in steps if _is_elsewhere(step) and _has_ended(step)]
    return [state.result(raise_on_failure=False) for state in states if state is not None and state.is_completed()]


def _final_state(step: PrefectFuture[Any]) -> Any:
    """Return the state of a step that has ended; None if its processes died."""
    step.wait()
    return getattr(step, "_final_state", None)


def _is_elsewhere(step: PrefectFuture[Any]) -> bool:
    return type(step).__module__.partition(".")[0] in ("prefect_dask", "prefect_ray")


def _has_ended(step: PrefectFuture[Any]) -> bool:
    """Return whether a step has ended.

    Prefect's own `wait` would add callbacks to the futures of a cluster at each call.
    """
    if getattr(step, "_final_state", None) is not None:
        return True
    is_done = getattr(getattr(step, "wrapped_future", None), "done", None)
    if is_done is not None:
        return bool(is_done())
    step.wait(timeout=0.0)
    return bool(getattr(step, "_final_state", None))


def _raise_if_killed(step: PrefectFuture[Any]) -> None:
    """Raise IncompleteError if the engine gave up a step: its processes died, so it has no state."""
    if _is_elsewhere(step) and _final_state(step) is None:
        error = getattr(step, "wrapped_future").exception()  # noqa: B009 (not declared by Prefect)
        raise IncompleteError(
            f"a chunk was given up after the processes that worked on it had ended: {type(error).__name__}; "
            f"finished calls are kept, and {hints.resume('EXPERIMENT').code}, or the next start of a trace evaluation, "
            "continues"
        )


@contextmanager
def _engine(spec: TaskRunnerSpec) -> Iterator[TaskRunner[Any]]:
    runner = _dask(spec) if spec.kind == "dask" else _ray(spec)
    with ExitStack() as running:
        try:
            running.enter_context(runner)
            getattr(runner, "client", None)  # Dask's connects: a wrong address is noticed here
        except (OSError, ValueError) as error:
            text = " ".join(str(error).split())
            raise InputError(f"task_runner: {spec.kind} at {spec.address or 'this machine'}: {text}") from error
        yield runner


def _dask(spec: TaskRunnerSpec) -> Any:
    """Return a runner on a running cluster, or on one of this machine that nobody else can use."""
    from prefect_dask.task_runners import DaskTaskRunner  # late: an extra, and it takes half a second

    if spec.address is not None:
        return DaskTaskRunner(address=spec.address, client_kwargs={"timeout": CONNECTED_WITHIN_S})
    here = {
        "n_workers": spec.processes or cores(),
        "threads_per_worker": CHUNKS_AT_ONCE,
        "memory_limit": 0,
        "dashboard_address": None,
        "silence_logs": logging.CRITICAL,  # what fails is reported by the run, in one line
        "security": True,  # certificates of its own: else every user of this machine could run code as this one
    }
    return DaskTaskRunner(cluster_kwargs=here)


def _ray(spec: TaskRunnerSpec) -> Any:
    """Return a runner on a running cluster, or on one of this machine. Ray sends no usage statistics."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from prefect_ray.task_runners import RayTaskRunner  # late: an extra

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if spec.address is not None:
        return RayTaskRunner(address=spec.address, init_kwargs=quiet)
    return RayTaskRunner(init_kwargs=quiet | {"num_cpus": spec.processes or cores(), "include_dashboard": False})
