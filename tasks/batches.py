"""Wait for the batches of a run: submit what was collected, and look at growing intervals whether they have ended.

Meanwhile the process of the run sleeps, and Prefect shows how far they are.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.states import Running

from evalflows.engine.budget_parts import Started
from evalflows.engine.interrupts import raise_if_pressed
from evalflows.engine.open_batches import WaitingRun, waiting_runs
from evalflows.engine.run_context import RunContext
from evalflows.llm import loop
from evalflows.llm.batches import Batch, Batches, BatchService, Waiting, limits_of, service_of
from evalflows.server_watch import report_if_possible
from evalflows.specs.errors import TRANSIENT, CallError, IncompleteError, InputError
from evalflows.specs.escaping import print_note
from evalflows.store.queries.continuing import continued_by
from evalflows.store.queries.looks import look_of
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store
from evalflows.store.trace_records import WatermarkRow
from evalflows.tasks.progress import enter_stage

GROWTH, LONGEST_INTERVAL_S = 1.5, 300.0
SUBMISSIONS = 4
"""The most attempts at submitting, while the provider cannot be reached."""
CHECK_INTERVAL_S = 0.5
"""Seconds between two checks for an interrupt."""


def another_pass(run: RunContext[Any], rows: Sequence[Started]) -> bool:
    """Return whether the work is to be done again, since batches have answered calls that were put off.

    It waits until all open batches have ended. `rows` are those of the run's experiments, its comparison or its batch.
    Raise IncompleteError, with what goes on, if they may not be waited for any longer, or if the provider refuses them.
    """
    batches = run.shared.batches
    if batches is None or not loop.call(batches.end_pass):
        return False
    try:
        _submit(run, batches)
        _wait(run, batches)
    except IncompleteError as error:
        raise IncompleteError(f"{error}; {_continued(run, rows[0])}") from None
    return True


def _continued(run: RunContext[Any], row: Started) -> str:
    """Say what goes on with a run."""
    if isinstance(row, WatermarkRow):
        return "the next start of the trace evaluation continues"
    return continued_by(run.store, row.experiment_id if isinstance(row, ExperimentRow) else row.comparison_id)


def runs_to_resume() -> list[WaitingRun]:
    """Return the runs of the store whose batches have all ended. Of one that cannot be looked at, the reason is
    printed."""
    store, ended = Store(), []
    for run in waiting_runs(store):
        try:
            if loop.run(_have_ended(run, run.service_of(store))):
                ended.append(run)
        except (CallError, InputError) as error:
            print_note(f"{run.called} ({run.id}): {error}")
    return ended


async def _have_ended(run: WaitingRun, service_of: Callable[[Batch], BatchService]) -> bool:
    for batch in run.batches:
        # one without an id was not submitted, or nobody knows: the run finds out
        if batch.is_open and batch.provider_id and not (await service_of(batch).look(batch.provider_id)).is_over:
            return False
    return True


def is_of_final_examples(run: WaitingRun) -> bool:
    """Return whether a run of experiments is a look at final examples."""
    return look_of(Store(), run.id) is not None


def _submit(run: RunContext[Any], batches: Batches) -> None:
    """Submit what was collected. Where a provider refuses a batch, its calls are made directly, if the connection says
    so. Raise IncompleteError if it does not, or if the provider cannot be reached."""
    for batch in loop.call(batches.to_submit):
        attempt = 1
        while (
            (error := _refusal(run, batches, batch)) is not None and error.kind in TRANSIENT and attempt < SUBMISSIONS
        ):
            _sleep(run, 2.0**attempt)
            attempt += 1
        if error is None:
            continue
        said = f"connection {batch.connection!r} ({batch.identity}): a batch could not be submitted: {error}"
        if error.kind in TRANSIENT:  # who knows whether the provider has it: another start finds out
            raise IncompleteError(said)
        endpoint = run.endpoints.get(batch.connection)
        if endpoint is None or limits_of(endpoint.connection).then != "direct":
            how = "an endpoint with batches, `mode: direct`, or `batch: {then: direct}` of the connection"
            raise IncompleteError(f"{said}; wanted {how}")
        print_note(f"{said}; its calls are made directly")
        loop.call(batches.make_directly, batch)


def _refusal(run: RunContext[Any], batches: Batches, batch: Batch) -> CallError | None:
    """Submit a batch. Return why that failed; None if it did not."""
    try:
        loop.run(batches.submit(batch, _service_of(run, batch)))
    except CallError as error:
        return error
    return None


def _wait(run: RunContext[Any], batches: Batches) -> None:
    """Wait until no batch is open."""
    interval = min(limits_of(endpoint.connection).poll_s for endpoint in run.endpoints.values())
    longest, began, shown = run.prepared.spec.batch_wait_s, time.monotonic(), ""
    while (waiting := _polled(run, batches)).batches:
        if str(waiting) != shown:
            shown = str(waiting)
            _show(run, shown)
        if longest is not None and time.monotonic() - began >= longest:
            raise IncompleteError(f"{waiting}, longer than batch_wait_s ({longest:g} s)")
        _sleep(run, interval if longest is None else min(interval, max(0.0, longest - time.monotonic() + began)))
        interval = min(LONGEST_INTERVAL_S, GROWTH * interval)
    if shown:
        _show(run, "reading the answers of batches")


def _polled(run: RunContext[Any], batches: Batches) -> Waiting:
    """Return how far the open batches are. A provider that cannot be reached is asked again later."""
    try:
        return loop.run(batches.poll(partial(_service_of, run)))
    except CallError as error:
        if error.kind not in TRANSIENT:
            raise IncompleteError(f"a batch could not be polled: {error}") from None
        print_note(f"the batches could not be polled: {error}; trying again later")
        return batches.waiting


def _service_of(run: RunContext[Any], batch: Batch) -> BatchService:
    """Return the interface of a batch, which an earlier process may have collected. Raise CallError."""
    endpoint = run.endpoints.get(batch.connection)
    if endpoint is None or endpoint.identity != batch.identity:
        at = f"connection {batch.connection!r} at {batch.identity}"
        raise CallError("bad_request", f"batch {batch.provider_id or batch.id}: got a spec without {at}")
    return service_of(endpoint)


def _sleep(run: RunContext[Any], seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        raise_if_pressed()
        if run.caller.server is not None:
            run.caller.server.raise_if_lost()
        loop.run(asyncio.sleep(min(left, CHECK_INTERVAL_S)))  # ends with the flow


def _show(run: RunContext[Any], message: str) -> None:
    """Tell who watches the run, and Prefect, what it waits for."""
    enter_stage(run, message)
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    with report_if_possible(run.caller.server), get_client(sync_client=True) as client:
        state: Any = Running(name="Waiting", message=message)
        client.set_flow_run_state(context.flow_run.id, state, force=True)
