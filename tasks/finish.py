"""Ending experiments: complete ones are sealed, the others stay open to be resumed."""

import atexit
import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from llm import loop
from specs.errors import UNREACHABLE, IncompleteError
from specs.experiment import ExperimentSpec
from store.parquet import Store
from store.progress import cached_calls, complete_scores, no_answers, no_judgements, spent, whats_missing
from store.records import ExperimentRow, LimitRow, now
from store.schemas import EXPERIMENT_TABLES
from tasks.experiment import experiment, forget, is_ready
from tasks.interrupts import heard
from tasks.limits import limit_rows
from tasks.progress import tally


@task(cache_policy=NO_CACHE, persist_result=False)
def finish_experiments(rows: list[ExperimentRow], stopped: str | None = None) -> list[str]:
    """Seal the experiments whose runs all have their rows. Returns what the others lack, in words.

    Nothing is said of those that were `stopped` on purpose, for the reason given: they stay open all the same.
    """
    store = Store()
    tally.forget(frozenset(row.experiment_id for row in rows))
    return [reason for row in rows if (reason := finish(store, row, stopped))]


@contextmanager
def calls_end_with_the_flow() -> Iterator[None]:
    """Where the flow is stopped in this block, the calls under way end, and none begins. What has finished is kept."""
    loop.allow()
    _spare_what_was_imported()
    try:
        with heard():
            yield
    except BaseException:
        loop.stop()
        raise


@cache
def _spare_what_was_imported() -> None:
    """Have the search for garbage leave out what is in memory when the first calls begin: of Prefect, DuckDB and the
    rest there is so much of it that every call would stand still for a third of a second each time."""
    gc.freeze()
    atexit.register(gc.unfreeze)  # or DuckDB reports at the end what was not cleared away


def raise_what_failed(
    steps: Sequence[PrefectFuture[Any]], lacking: Sequence[str], experiments: Sequence[ExperimentRow] = ()
) -> None:
    """Raises the first exception of a step, else IncompleteError if anything lacks of what was run."""
    for step in steps:
        step.wait()  # else its state is asked of the server
        if step.state.is_failed() or step.state.is_crashed():
            step.result()
    if lacking:
        raise IncompleteError("; ".join(lacking), [row.experiment_id for row in experiments])


def finish(store: Store, row: ExperimentRow, stopped: str | None = None) -> str | None:
    """Write an experiment's last row, and seal it if no row lacks. Returns what is wrong with it, in words."""
    limits = _limits(row)
    forget(row.experiment_id, row.run_group)
    if store.is_sealed("experiments", row.experiment_id):
        return _said(row)
    ended = store.steady(lambda: _ended(store, row))
    if on_purpose := ended.state == "incomplete" and stopped is not None:
        ended = replace(ended, reason=stopped)
    store.append("limits", row.experiment_id, "limits", limits)
    store.append("experiments", row.experiment_id, "end", [ended])
    if ended.state == "completed":
        complete_scores(store, row.experiment_id)
        store.seal(row.experiment_id, EXPERIMENT_TABLES)
    return None if on_purpose else _said(ended)


def _ended(store: Store, row: ExperimentRow) -> ExperimentRow:
    """An experiment's last row: whether it is done, what it lacks, what it cost."""
    spec = ExperimentSpec.model_validate_json(row.spec)
    names = [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]
    lacking = whats_missing(store, row, names, [evaluator.metric for evaluator in spec.summary_evaluators])
    sums = spent(store, row.experiment_id)
    return replace(
        row,
        state="incomplete" if lacking else "completed",
        reason=lacking or no_answers(store, row) or no_judgements(store, row, UNREACHABLE),
        calls=sums.calls,
        calls_cached=cached_calls(store, row.experiment_id),
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=now(),
        recorded_at=now(),
    )


def _limits(row: ExperimentRow) -> list[LimitRow]:
    """How wide the limiters were; none where this process has made no call for the experiment."""
    if not is_ready(row.experiment_id):
        return []
    ready = experiment(row.experiment_id)
    return limit_rows(row.experiment_id, [*ready.answering_on, *ready.judging_on], ready.made_at)


def _said(row: ExperimentRow) -> str | None:
    return f"experiment {row.name!r} ({row.experiment_id}): {row.reason}" if row.reason else None
