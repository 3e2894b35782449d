"""Finish experiments: seal the complete ones; the others stay open to be resumed.

One process at a time works on them; rules of retention are applied.
"""

import getpass
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from evalflows.engine import workers
from evalflows.engine.chunks import tally
from evalflows.engine.experiments import drop_experiment
from evalflows.engine.interrupts import interrupts_noted
from evalflows.engine.prepare import prepared_experiments
from evalflows.engine.rare_collection import collect_rarely
from evalflows.llm import loop
from evalflows.prefect_texts import erase_prefect_texts
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import UNREACHABLE, IncompleteError, StorageError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.traces import RetentionSpec
from evalflows.store.database import shared
from evalflows.store.leases import Lease, leased, refuse_if_in_use
from evalflows.store.queries.progress import (
    application_versions,
    cached_calls,
    complete_judgements,
    may_be_complete,
    no_answers,
    none_judged,
    spent,
    whats_missing,
)
from evalflows.store.queries.values import has_many_runs
from evalflows.store.records import ExperimentRow, after
from evalflows.store.retention import retain
from evalflows.store.row_specs import experiment_spec
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.store import Store
from evalflows.tasks.compare import comparison_id
from evalflows.tasks.execute import run_group

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
        workers.end()


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
    ended_job = drop_experiment(row.experiment_id, row.run_group)
    limits = ended_job.limit_rows(row.experiment_id) if ended_job else []
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
        complete_judgements(store, row.experiment_id)
        store.seal(row.experiment_id, EXPERIMENT_TABLES)
    return None if is_stopped else _problem(ended)


def _evaluators(spec: ExperimentSpec) -> list[str]:
    """Return the names of what judges every run."""
    return [evaluator.metric for evaluator in spec.evaluators] + [composite.name for composite in spec.composites]


def _ended(store: Store, row: ExperimentRow, evaluators: Sequence[str]) -> ExperimentRow:
    """Return an experiment's last row: its state, what it lacks, and what it cost."""
    summaries = [evaluator.metric for evaluator in experiment_spec(row).summary_evaluators]
    planned = row.n_examples * row.repetitions
    lacking = whats_missing(store, row.experiment_id, evaluators, planned, answers=planned, summaries=summaries)
    sums, ended_at = spent(store, row.experiment_id), after(row.recorded_at)
    return replace(
        row,
        application_version=application_versions(store, row.experiment_id) or row.application_version,
        state="incomplete" if lacking else "completed",
        reason=lacking or no_answers(store, row) or none_judged(store, row.experiment_id, UNREACHABLE),
        calls=sums.calls,
        calls_cached=cached_calls(store, row.experiment_id),
        tokens_in=sums.tokens_in,
        tokens_out=sums.tokens_out,
        cost_usd=sums.cost_usd,
        ended_at=ended_at,
        recorded_at=ended_at,
    )


def _problem(row: ExperimentRow) -> str | None:
    return f"experiment {row.name!r} ({row.experiment_id}): {row.reason}" if row.reason else None


def lease_of_run(spec: ExperimentSpec, resume: str | None) -> AbstractContextManager[Lease]:
    """Hold the lease of a spec's run group during a block, so that nobody else pays for the same answers.

    If another process has it, `resume` raises InputError: somebody resumes what is running. A run waits, since it has
    the same run key or is the same flow run: when the other one has ended, it only does what is left.
    """
    group = resume or run_group(spec)
    return leased(Store(), group, _experiment(spec), wait=resume is None, on_loss=loop.stop)


def lease_of_comparison(spec: ComparisonSpec, resume: str | None) -> AbstractContextManager[Lease]:
    """Hold the lease of a comparison during a block; the same as for the run group of an experiment."""
    identity = resume or comparison_id(spec)
    return leased(Store(), identity, _comparison(spec), wait=resume is None, on_loss=loop.stop)


def refuse_if_running(spec: ExperimentSpec | ComparisonSpec, resume: str | None) -> None:
    """Raise InputError if what shall be resumed is running, before Prefect starts."""
    if resume is not None:
        work = _experiment(spec) if isinstance(spec, ExperimentSpec) else _comparison(spec)
        refuse_if_in_use(Store(), resume, work)


def _experiment(spec: ExperimentSpec) -> str:
    return f"experiment {spec.name!r}"


def _comparison(spec: ComparisonSpec) -> str:
    return f"comparison {spec.title!r}"


@task(cache_policy=NO_CACHE, persist_result=False)
def retain_by_rules(spec: RetentionSpec) -> dict[str, dict[str, int]]:
    """Erase and remove what is too old, and publish the artifact `retention`. Return the numbers of rows by table."""
    by = None
    with suppress(OSError, KeyError):
        by = getpass.getuser()
    done = retain(Store(), spec, by, erase_prefect_texts)
    rows = [{"rule": one.rule, "table": name, "rows": count} for one in done for name, count in one.rows.items()]
    create_table_artifact(key="retention", table=rows, description="Rows that lost texts or were removed")
    return {one.rule: dict(one.rows) for one in done}
