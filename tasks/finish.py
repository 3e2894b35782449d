"""Finish experiments: seal the complete ones; the others stay open to be resumed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from evalflows.execution import quick_processes
from evalflows.execution.interrupts import interrupts_noted
from evalflows.execution.limiter_history import limit_rows
from evalflows.execution.prepared import prepared_experiments
from evalflows.execution.progress import tally
from evalflows.execution.rare_collection import collect_rarely
from evalflows.execution.running_experiment import forget_experiment, is_running, running_experiment
from evalflows.llm import loop
from evalflows.specs.errors import UNREACHABLE, IncompleteError, StorageError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.metric_values import has_many_runs
from evalflows.store.queries.progress import (
    application_versions,
    cached_calls,
    complete_scores,
    may_be_complete,
    no_answers,
    no_judgements,
    spent,
    whats_missing,
)
from evalflows.store.records import ExperimentRow, LimitRow, after
from evalflows.store.row_specs import experiment_spec
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.source import shared

RESULT_TABLES = EXPERIMENT_TABLES[:-1]
"""The tables of an experiment but for its own row."""


@task(cache_policy=NO_CACHE, persist_result=False)
def finish_experiments(rows: list[ExperimentRow], stopped: str | None = None) -> list[str]:
    """Seal the complete experiments, and return what the others lack, in words.

    Experiments `stopped` on purpose, for the reason given, stay open but are not reported.
    """
    store = Store()
    tally.forget(frozenset(row.experiment_id for row in rows))
    return [reason for row in rows if (reason := finish(store, row, stopped))]


@contextmanager
def calls_end_with_the_flow() -> Iterator[None]:
    """If the flow is stopped in this block, cancel the calls in flight and start no more; finished calls are kept."""
    loop.allow()
    collect_rarely()
    try:
        with interrupts_noted():
            yield
    except BaseException:
        loop.stop()
        raise
    finally:
        quick_processes.end()


def raise_failures(
    steps: Sequence[PrefectFuture[Any]],
    lacking: Sequence[str],
    resumed: str | None,
    experiments: Sequence[ExperimentRow] = (),
) -> None:
    """Raise the first exception of a step; otherwise raise IncompleteError if anything is lacking.

    `resumed` is the id of what a resumption continues, from `first_open`.
    """
    for step in steps:
        if getattr(step, "_final_state", None) is None:  # a cluster that has ended cannot be asked again
            step.wait()  # or its state is read from the server
        if step.state.is_failed() or step.state.is_crashed():
            step.result()
    if lacking:
        continues = [f"`evalflows resume {resumed}` continues"] if resumed else []
        raise IncompleteError("; ".join([*lacking, *continues]), [row.experiment_id for row in experiments])


def first_open(table: str, owners: Sequence[str]) -> str | None:
    """Return the first of these experiments, or comparisons, that is incomplete; None if a resumption changes none."""
    store = Store()
    return next((owner for owner in owners if not store.is_sealed(table, owner)), None)


def finish(store: Store, row: ExperimentRow, stopped: str | None = None) -> str | None:
    """Write an experiment's last row, seal it if it is complete, and return what is wrong with it, in words."""
    limits = _limits(row)
    forget_experiment(row.experiment_id, row.run_group)
    prepared_experiments.forget(experiment_spec(row))
    if store.is_sealed("experiments", row.experiment_id):
        return _problem(row)
    if not store.read("experiments", row.experiment_id):
        raise StorageError(f"{store.layout.root}: the store was removed while experiment {row.name!r} was running")
    store.append("limits", row.experiment_id, "limits", limits)
    evaluators = _evaluators(experiment_spec(row))
    if is_tried := may_be_complete(store, row, evaluators):  # of sealed rows, no query has to find the newest
        store.seal(row.experiment_id, RESULT_TABLES)
    with shared.little_memory(is_needed=has_many_runs(row)):
        ended = store.steady(lambda: _ended(store, row, evaluators))
    if is_stopped := ended.state == "incomplete" and stopped is not None:
        ended = replace(ended, reason=stopped)
    if is_tried and ended.state != "completed":
        store.reopen(row.experiment_id, RESULT_TABLES)
    store.append("experiments", row.experiment_id, "end", [ended])
    if ended.state == "completed":
        complete_scores(store, row.experiment_id)
        store.seal(row.experiment_id, EXPERIMENT_TABLES)
    return None if is_stopped else _problem(ended)


def _evaluators(spec: ExperimentSpec) -> list[str]:
    """Return the names of what judges every run."""
    return [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]


def _ended(store: Store, row: ExperimentRow, evaluators: Sequence[str]) -> ExperimentRow:
    """Return an experiment's last row: its state, what it lacks, and what it cost."""
    summaries = [evaluator.metric for evaluator in experiment_spec(row).summary_evaluators]
    lacking = whats_missing(store, row, evaluators, summaries)
    sums, ended_at = spent(store, row.experiment_id), after(row.recorded_at)
    return replace(
        row,
        application_version=application_versions(store, row.experiment_id) or row.application_version,
        state="incomplete" if lacking else "completed",
        reason=lacking or no_answers(store, row) or no_judgements(store, row, UNREACHABLE),
        calls=sums.calls,
        calls_cached=cached_calls(store, row.experiment_id),
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=ended_at,
        recorded_at=ended_at,
    )


def _limits(row: ExperimentRow) -> list[LimitRow]:
    """Return the history of the limiters; empty if this process made no call for the experiment."""
    if not is_running(row.experiment_id):
        return []
    experiment = running_experiment(row.experiment_id)
    return limit_rows(row.experiment_id, [*experiment.answering_on, *experiment.judging_on], experiment.made_at)


def _problem(row: ExperimentRow) -> str | None:
    return f"experiment {row.name!r} ({row.experiment_id}): {row.reason}" if row.reason else None
