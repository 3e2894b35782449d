"""Chunks that were sent to this process: prepare the process for them, as the run prepares its own."""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar, cast

from evalflows.execution.chunks import Chunk, Rounds
from evalflows.execution.dispatch import budget_of_part
from evalflows.execution.limiter_history import limit_rows
from evalflows.execution.pair_chunks import PairChunk
from evalflows.execution.prepared import prepared_comparisons
from evalflows.execution.running_comparison import (
    RunningComparison,
    forget_earlier_comparison,
    running_comparison,
)
from evalflows.execution.running_experiment import (
    RunningExperiment,
    forget_earlier,
    forget_ended,
    is_running,
    running_experiment,
)
from evalflows.execution.same_code import check_code, check_code_of_experiment
from evalflows.llm import loop
from evalflows.llm.divided_budget import divided
from evalflows.specs.errors import InputError
from evalflows.store.parquet import Store
from evalflows.store.queries.spent_parts import costs_of_part
from evalflows.store.records import to_json
from evalflows.store.spool import recover
from evalflows.tasks.deployed_run import restrict_process

RECOVERY_S = 10.0
"""Seconds that a chunk waits for its spool, in case the process that had it before is still ending."""

Part = Chunk | PairChunk


Work = TypeVar("Work", Rounds, Chunk, PairChunk)


def in_any_process(work: Callable[[Work], Work]) -> Callable[[Work], Work]:
    """Let a task's function also work on chunks that were sent to this process by a run in another one.

    They come back with the costs of the calls that were made for them.
    """

    @wraps(work)
    def in_this_process(given: Work) -> Work:
        sent = [chunk for chunk in given.chunks if chunk.dispatch is not None]
        if not sent:
            return work(given)
        with _taken_up(sent) as store:
            before = {chunk: costs_of_part(store, chunk.owner, chunk.part) for chunk in sent}
            work(given)
            back: dict[Part, Any] = {chunk: _with_costs(store, chunk, before[chunk]) for chunk in sent}
        if isinstance(given, Rounds):
            return replace(given, chunks=tuple(back[chunk] for chunk in given.chunks))
        return cast("Work", back[given])

    return in_this_process


def _with_costs(store: Store, chunk: Part, before: Mapping[str, float | None]) -> Part:
    """Return a chunk with what it brings back to the run: the costs of the calls made for it."""
    costs = costs_of_part(store, chunk.owner, chunk.part)
    made = tuple(cost for call, cost in costs.items() if call not in before)
    return replace(chunk, dispatch=replace(chunk.dispatch, costs=made)) if chunk.dispatch else chunk


@contextmanager
def _taken_up(chunks: Sequence[Part]) -> Iterator[Store]:
    """Take up chunks, with what dead processes have left of them, their budgets, and the calls that others have paid.

    Raise InputError if this process has another store or other code than the run.
    """
    loop.allow()
    restrict_process()
    store = Store()
    for chunk in chunks:
        if chunk.dispatch is not None:
            _check_attempt(store, chunk, chunk.dispatch.attempt)
        recover(store, chunk.owner, RECOVERY_S, chunk.part)
    with divided({chunk.owner: budget_of_part(store, chunk) for chunk in chunks}):
        running = [_running(chunk) for chunk in chunks]
        for ledger in {id(one.ledger): one.ledger for one in running}.values():
            ledger.refresh()
        try:
            yield store
        finally:
            for chunk, one in zip(chunks, running, strict=True):
                endpoints = [*getattr(one, "answering_on", ()), *one.judging_on]
                process = f"limits-{socket.gethostname()}-{os.getpid()}".replace(".", "-")
                store.append("limits", chunk.owner, process, limit_rows(chunk.owner, endpoints, one.made_at))


def _check_attempt(store: Store, chunk: Part, attempt: datetime) -> None:
    """Forget what this process made for earlier starts. Raise InputError if the store is not that of the run."""
    table = "experiments" if isinstance(chunk, Chunk) else "comparison_sets"
    rows = store.read(table, chunk.owner)
    if not rows or rows[0].recorded_at < attempt:
        raise InputError(
            f"store {store.layout.root} on {socket.gethostname()}: has no start of {chunk.owner} at "
            f"{attempt:%Y-%m-%d %H:%M:%S} UTC, wanted EVALFLOWS_STORE of that process to name the store of the run"
        )
    if isinstance(chunk, PairChunk):
        forget_earlier_comparison(chunk.owner, attempt)
        return
    forget_earlier(chunk.owner, attempt)
    if not is_running(chunk.owner):
        forget_ended(store)


def _running(chunk: Part) -> RunningExperiment | RunningComparison:
    """Return what this process needs for the calls of a chunk. Raise InputError if it has other code than the run."""
    if isinstance(chunk, PairChunk):
        comparison = running_comparison(chunk.comparison_id)
        described = to_json(prepared_comparisons.of(comparison.spec).described)
        check_code(chunk.owner, "evaluators", comparison.row.evaluators, described)
        return comparison
    experiment = running_experiment(chunk.experiment_id)
    check_code_of_experiment(experiment)
    return experiment
