"""The engine that runs the chunks of a flow: its own threads, or the processes of a cluster of Dask or Ray;
progress, and what a deployment's run may name.

prefect-dask and prefect-ray are imported only here, and only if a spec asks for them.

Pickled as they are, Prefect's tasks and flows bring along the code of their functions and whatever it mentions.
"""

import copy
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from importlib import import_module
from inspect import Signature, signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from prefect import Flow, Task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture, wait
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from evalflows.engine.chunks import CHUNKS_AT_ONCE, AnySpec, Part, Planned, Rounds, budget_of_part
from evalflows.engine.interrupts import raise_if_pressed
from evalflows.engine.jobs import job_of
from evalflows.engine.run_context import RunContext
from evalflows.engine.workers import cores
from evalflows.llm.budget import DividedBudget
from evalflows.llm.connections import addresses_of_keys
from evalflows.reports.progress import Progress
from evalflows.server_watch import reported_if_possible
from evalflows.specs import hints, permitted
from evalflows.specs.errors import IncompleteError, InputError
from evalflows.specs.files import located
from evalflows.specs.running import LocalConnection, TaskRunnerSpec
from evalflows.store.queries.progress import costs_of_part
from evalflows.store.records import ExperimentRow
from evalflows.store.row_specs import experiment_spec
from evalflows.store.spool import recover
from evalflows.store.store import Store
from evalflows.tasks.limits import retries_of


def restrict_deployed_run(spec: AnySpec) -> None:
    """If this flow run is one of a deployment, let specs name only the modules and files of the worker's folder.

    Keys are then sent only to the addresses for which the worker's owner has defined or allowed them. This holds for
    the rest of the process, which a worker starts for each flow run. Raise InputError if the spec names the file of a
    model elsewhere: later it holds the shared connections too, whose files are the user's choice.
    """
    if not restrict_process():
        return
    permitted.check_deployed_from(Path.cwd())
    for name, connection in spec.connections.items():
        if isinstance(connection, LocalConnection) and connection.gguf is not None:
            try:
                located(connection.gguf)
            except InputError as error:
                raise InputError(f"connection {name!r}: gguf: {error}") from error


def restrict_process() -> bool:
    """Restrict this process if the current flow run is one of a deployment. Return whether it is.

    A process that chunks are sent to stays restricted too.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.deployment_id is None:
        return False
    permitted.restrict(Path.cwd())
    permitted.restrict_environment(addresses_of_keys())
    return True


Given = ParamSpec("Given")
Work = TypeVar("Work")


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


_OWN: Any = ThreadPoolTaskRunner(max_workers=1)


CONNECTED_WITHIN_S = 10
"""Seconds that the scheduler of a running cluster may take to answer."""

POLL_S = 0.1

Steps = Sequence[PrefectFuture[Any]]


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
    """Whether a step has ended. Prefect's own `wait` would add callbacks to the futures of a cluster at each call."""
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


INTERVAL_S = 1.0


def enter_stage(run: RunContext[Any], stage: str) -> None:
    """Tell the program that called the flow what the run does now."""
    _tell(run, Progress(stage=stage))


def _tell(run: RunContext[Any], progress: Progress) -> None:
    if run.caller.watch is not None:
        run.caller.watch(progress)


def planned_of(experiments: Sequence[ExperimentRow]) -> Planned:
    """Return the work planned for the experiments that are running."""
    running = [row for row in experiments if row.state == "running"]
    judges = len(experiment_spec(running[0]).evaluators) if running else 0
    runs = sum(row.n_examples * row.repetitions for row in running)
    owners = frozenset(row.experiment_id for row in running)
    return Planned(owners=owners, answers=runs, judgements=runs * judges, of_item=judges)


def wait_with_progress(run: RunContext[Any], steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Wait for all steps, and report progress meanwhile; to Prefect's UI only if it takes longer than INTERVAL_S."""
    if not planned.owners:
        return
    server = run.caller.server
    if server is not None:
        server.owners |= planned.owners
    _tell(run, _progress(run, planned))
    artifact, shown = None, 0.0
    while True:
        pending = not_done(steps, INTERVAL_S)
        raise_if_pressed()
        if server is not None:
            server.raise_if_lost()
        _count_ended(run, steps, planned)
        progress = _progress(run, planned)
        _tell(run, progress)
        percent = round(progress.percent if pending else 100.0, 1)
        with reported_if_possible(server):
            if artifact is None and pending:
                artifact = create_progress_artifact(percent, key="progress", description="Answers and judgements")
            elif artifact is not None and percent != shown:
                update_progress_artifact(artifact_id=artifact, progress=percent)  # type: ignore[arg-type]
            shown = percent
        if not pending:
            return


def _count_ended(run: RunContext[Any], steps: Sequence[PrefectFuture[Any]], planned: Planned) -> None:
    """Count the chunks that have ended in other processes, whose items this one cannot count one by one."""
    tally = run.tally
    for work in ended_work(steps):
        for chunk in getattr(work, "chunks", ()):
            if chunk.dispatch is not None:
                run.calls.count_elsewhere((type(work), chunk.owner, chunk.part), chunk.owner, chunk.dispatch.costs)
            if isinstance(work, Rounds):
                tally.begin(chunk, "answers", chunk.n_items)
            else:
                tally.begin(chunk, "judgements", chunk.n_items * planned.of_item)


def _progress(run: RunContext[Any], planned: Planned) -> Progress:
    tally, made = run.tally, run.calls.made
    failed, again_in_s = tally.waiting(planned.owners) or run.calls.waits()
    return Progress(
        stage=planned.stage,
        answers=tally.of(planned.owners, "answers"),
        judgements=tally.of(planned.owners, "judgements"),
        lost_answers=tally.lost_of(planned.owners, "answers"),
        lost_judgements=tally.lost_of(planned.owners, "judgements"),
        planned_answers=planned.answers,
        planned_judgements=planned.judgements,
        calls=sum(made[owner] for owner in planned.owners),
        cost_usd=run.calls.cost(planned.owners),
        failed=failed,
        again_in_s=again_in_s,
    )


RECOVERY_S = 10.0
"""Seconds that a chunk waits for its spool, in case the process that had it before is still ending."""

TakenUp = TypeVar("TakenUp", bound=Any)


OnChunks = Callable[[RunContext[Any], TakenUp], TakenUp]


def in_any_process(work: OnChunks[TakenUp]) -> OnChunks[TakenUp]:
    """Let a task's function also work on chunks that were sent to this process by a run in another one.

    They come back with the costs of the calls that were made for them.
    """

    @wraps(work)
    def in_this_process(run: RunContext[Any], given: TakenUp) -> TakenUp:
        if all(chunk.dispatch is None for chunk in given.chunks):
            return work(run, given)
        with _taken_up(run, given.chunks):
            before = [costs_of_part(run.store, chunk.owner, chunk.part) for chunk in given.chunks]
            done = work(run, given)
            back: list[Any] = [_with_costs(run.store, *one) for one in zip(done.chunks, before, strict=True)]
        return replace(done, chunks=tuple(back)) if isinstance(done, Rounds) else cast("TakenUp", back[0])

    return in_this_process


def _with_costs(store: Store, chunk: Part, before: Mapping[str, float | None]) -> Part:
    """Return a chunk with what it brings back to the run: the costs of the calls made for it."""
    costs = costs_of_part(store, chunk.owner, chunk.part)
    made = tuple(cost for call, cost in costs.items() if call not in before)
    return replace(chunk, dispatch=replace(chunk.dispatch, costs=made)) if chunk.dispatch else chunk


@contextmanager
def _taken_up(run: RunContext[Any], chunks: Sequence[Part]) -> Iterator[None]:
    """Take up chunks, with what dead processes have left of them, their budgets, and the calls that others have paid.

    Raise InputError if this process has another store or other code than the run.
    """
    restrict_process()
    store = run.store
    for chunk in chunks:
        if chunk.dispatch is not None:
            _check_attempt(store, chunk, chunk.dispatch.attempt)
        recover(store, chunk.owner, RECOVERY_S, chunk.part)
    running = [job_of(run, chunk) for chunk in chunks]
    with ExitStack() as stack:
        for chunk, one in zip(chunks, running, strict=True):
            if isinstance(one.budget, DividedBudget):
                stack.enter_context(one.budget.spending(budget_of_part(store, chunk)))
        for ledger in {id(one.ledger): one.ledger for one in running}.values():
            ledger.refresh()
        try:
            yield
        finally:
            for chunk, one in zip(chunks, running, strict=True):
                process = f"limits-{socket.gethostname()}-{os.getpid()}".replace(".", "-")
                store.append("limits", chunk.owner, process, one.limit_rows(chunk.owner))


def _check_attempt(store: Store, chunk: Part, attempt: datetime) -> None:
    """Raise InputError if the store is not that of the run."""
    started = chunk.attempt_in(store)
    if started is None or started < attempt:
        raise InputError(
            f"store {store.layout.root} on {socket.gethostname()}: has no start of {chunk.owner} at "
            f"{attempt:%Y-%m-%d %H:%M:%S} UTC, wanted EVALFLOWS_STORE of that process to name the store of the run"
        )
