"""Finish experiments and comparisons: seal the complete ones; the others stay open to be resumed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from evalflows.engine.interrupts import interrupts_noted
from evalflows.engine.run_context import RunContext
from evalflows.llm import loop
from evalflows.specs.errors import UNREACHABLE, IncompleteError, StorageError
from evalflows.store.database import shared
from evalflows.store.queries.complete_judgements import complete_judgements
from evalflows.store.queries.continuing import continued_by
from evalflows.store.queries.progress import WorkDone, may_be_complete, nothing_made, whats_missing, work_done
from evalflows.store.queries.values import are_many
from evalflows.store.records import ComparisonSetRow, ExperimentRow, after
from evalflows.store.store import Store
from evalflows.tasks.start import Row, Work, work_of


@task(cache_policy=NO_CACHE, persist_result=False)
def finish(run: RunContext[Any], rows: Sequence[Row], stopped: str | None = None) -> list[str]:
    """Seal the complete experiments or comparisons, and return what is wrong with the others, in words.

    Those `stopped` on purpose, for the reason given, stay open but are not reported.
    """
    lacking = [reason for row in rows if (reason := _finish(run, row, stopped))]
    run.reset()
    return lacking


@contextmanager
def calls_end_with_the_flow(run: RunContext[Any]) -> Iterator[None]:
    """If the flow is stopped in this block, cancel the calls in flight and start no more; finished calls are kept."""
    try:
        with loop.ends_with(), interrupts_noted():
            yield
    finally:
        run.end_processes()


def raise_failures(steps: Sequence[PrefectFuture[Any]], lacking: Sequence[str], rows: Sequence[Row]) -> None:
    """Raise the first exception of a step; otherwise raise IncompleteError if anything is lacking in the experiments,
    or the comparison, with what resumes them."""
    for step in steps:
        if getattr(step, "_final_state", None) is None:  # a cluster that has ended cannot be asked again
            step.wait()  # or its state is read from the server
        if step.state.is_failed() or step.state.is_crashed():
            step.result()
    if lacking:
        store, works = Store(), [work_of(row) for row in rows]
        still_open = [work.owner for work in works if not store.is_sealed(work.table, work.owner)]
        continues = [continued_by(store, owner) for owner in still_open[:1]]  # none if a resumption changes nothing
        experiments = [row.experiment_id for row in rows if isinstance(row, ExperimentRow)]
        raise IncompleteError("; ".join([*lacking, *continues]), experiments)


def _finish(run: RunContext[Any], row: Row, stopped: str | None = None) -> str | None:
    """Write the last row of an experiment or a comparison, seal it if it is complete, and return what is wrong with it,
    in words.

    One that was `stopped` on purpose, for the reason given, stays open, and nothing is wrong with it; a comparison is
    completed then, as it is decided. Raise StorageError if the store was removed meanwhile.
    """
    store, work = run.store, work_of(row)
    ended_job = run.known_job(work.owner)
    if store.is_sealed(work.table, work.owner):
        return _problem(store, work, row)
    if not store.open_parts(work.table, work.owner):
        raise StorageError(f"{store.layout.root}: the store was removed while {work.called} was running")
    store.append("limits", work.owner, "limits", ended_job.limit_rows(work.owner) if ended_job else [])
    *results, _ = work.tables
    if is_tried := may_be_complete(store, work.owner, work.answers, work.planned * len(work.evaluators)):
        store.seal(work.owner, results)  # of sealed rows, no query has to find the newest
    with shared.little_memory(is_needed=are_many(work.planned)), store.reading(only={"experiment_id": [work.owner]}):
        ended = store.steady(lambda: _ended(store, work, row), ("outputs", "judgements", "calls"))
    if is_stopped := ended.state == "incomplete" and stopped is not None:
        ended = replace(ended, reason=stopped)
    if is_tried and ended.state != "completed":
        store.reopen(work.owner, results)
    if ended.state == "completed":
        with store.reading(only={"experiment_id": [work.owner]}):
            complete_judgements(store, work.owner)
        store.seal(work.owner, results)
        store.publish(work.table, work.owner, [ended])
        store.seal(work.owner, [work.table])  # removes its open parts
    else:
        is_decided = is_stopped and isinstance(ended, ComparisonSetRow)
        store.append(work.table, work.owner, "end", [replace(ended, state="completed") if is_decided else ended])
    return None if is_stopped else _problem(store, work, ended)


def _ended(store: Store, work: Work, row: Row) -> Row:
    """Return the last row of an experiment or a comparison: its state, what it lacks, and what it cost."""
    so_far = _made(store, work, row)
    lacking = whats_missing(
        store, work.owner, so_far, work.evaluators, work.planned, answers=work.answers, summaries=work.summaries
    )
    reason = lacking or "; ".join(nothing_made(store, work.owner, so_far, answers=work.answers)) or so_far.given_twice
    if isinstance(row, ExperimentRow):
        row = replace(row, application_version=", ".join(so_far.versions) or row.application_version)
    sums, ended_at = so_far.spent, after(row.recorded_at)
    return replace(
        row,
        state="incomplete" if lacking else "completed",
        reason=reason,
        calls=sums.calls,
        calls_cached=so_far.calls_cached,
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=ended_at,
        recorded_at=ended_at,
    )


def _made(store: Store, work: Work, row: Row) -> WorkDone:
    is_application = isinstance(row, ExperimentRow) and row.target_kind == "http"
    return work_done(store, work.owner, UNREACHABLE, is_application=is_application)


def _problem(store: Store, work: Work, row: ExperimentRow | ComparisonSetRow) -> str | None:
    """Return the reason of a row, with the errors that it leaves to the list of failures."""
    if not row.reason:
        return None
    found = {}
    if row.state == "completed":
        found = nothing_made(store, work.owner, _made(store, work, row), answers=work.answers)
    return f"{work.called}: {'; '.join(f'{what}: {error}' for what, error in found.items()) or row.reason}"
