"""Chunks in any process: what a process needs to take one up, and what a deployment's run may name."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from prefect.context import FlowRunContext

from evalflows.engine.budget_parts import AnySpec, budget_of_part
from evalflows.engine.chunks import Chunk, Rounds
from evalflows.engine.jobs import job_of
from evalflows.engine.run_context import RunContext
from evalflows.llm.budget import DividedBudget
from evalflows.llm.connections import addresses_of_keys
from evalflows.specs import permitted
from evalflows.specs.connections import LocalConnection
from evalflows.specs.errors import InputError
from evalflows.specs.files import located
from evalflows.store.queries.spending import costs_of_part
from evalflows.store.spool import recover
from evalflows.store.store import Store

RECOVERY_S = 10.0
"""Seconds that a chunk waits for its spool, in case the process that had it before is still ending."""

TakenUp = TypeVar("TakenUp", bound=Any)

OnChunks = Callable[[RunContext[Any], TakenUp], TakenUp]


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


def in_any_process(work: OnChunks[TakenUp]) -> OnChunks[TakenUp]:
    """Let a task's function also work on chunks that were sent to this process by a run in another one.

    They come back with the costs of the calls that were made for them.
    """

    @wraps(work)
    def in_this_process(run: RunContext[Any], given: TakenUp) -> TakenUp:
        if all(chunk.dispatch is None for chunk in given.chunks):
            return work(run, given)
        with _take_up(run, given.chunks):
            done = work(run, given)
            back: list[Any] = [_with_costs(run.store, chunk) for chunk in done.chunks]
        return replace(done, chunks=tuple(back)) if isinstance(done, Rounds) else cast("TakenUp", back[0])

    return in_this_process


def _with_costs(store: Store, chunk: Chunk) -> Chunk:
    """Return a chunk with what it brings back to the run: the costs of the calls made since it was sent, also by
    processes that died meanwhile."""
    if chunk.dispatch is None:
        return chunk
    costs = costs_of_part(store, chunk.owner, chunk.part_name)
    made = {call: cost for call, cost in costs.items() if call not in chunk.dispatch.paid_before}
    return replace(chunk, dispatch=replace(chunk.dispatch, costs=made))


@contextmanager
def _take_up(run: RunContext[Any], chunks: Sequence[Chunk]) -> Iterator[None]:
    """Take up chunks, with what dead processes have left of them, their budgets, and the calls that others have paid.

    Raise InputError if this process has another store or other code than the run.
    """
    restrict_process()
    store = run.store
    for chunk in chunks:
        if chunk.dispatch is not None:
            _check_attempt(store, chunk, chunk.dispatch.attempt)
        recover(store, chunk.owner, RECOVERY_S, chunk.part_name)
    running = [job_of(run, chunk) for chunk in chunks]
    with ExitStack() as stack:
        for chunk, job in zip(chunks, running, strict=True):
            if isinstance(job.budget, DividedBudget):
                stack.enter_context(job.budget.spending(budget_of_part(store, chunk)))
        for ledger in {id(job.ledger): job.ledger for job in running}.values():
            ledger.refresh()
        try:
            yield
        finally:
            for chunk, job in zip(chunks, running, strict=True):
                process = f"limits-{socket.gethostname()}-{os.getpid()}".replace(".", "-")
                store.append("limits", chunk.owner, process, job.limit_rows(chunk.owner))


def _check_attempt(store: Store, chunk: Chunk, attempt: datetime) -> None:
    """Raise InputError if the store is not that of the run."""
    started = chunk.attempt_in(store)
    if started is None or started < attempt:
        raise InputError(
            f"store {store.layout.root} on {socket.gethostname()}: has no start of {chunk.owner} at "
            f"{attempt:%Y-%m-%d %H:%M:%S} UTC, wanted EVALFLOWS_STORE of that process to name the store of the run"
        )
