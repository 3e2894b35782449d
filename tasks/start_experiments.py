"""Start or resume experiments."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.final_looks import take_look
from evalflows.engine.chunks import chunk_size
from evalflows.engine.experiments import Context
from evalflows.engine.may_call_models import HOW_TO_RECORD, unlimited
from evalflows.engine.order import ORDER_SEED
from evalflows.engine.prepare import PreparedExperiment, experiment_id
from evalflows.engine.quick_processes import is_quick
from evalflows.engine.spec_targets import said_version, target_code, target_version
from evalflows.specs.escaping import print_note
from evalflows.store.described import to_described
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store
from evalflows.tasks.limits import check_limits
from evalflows.tasks.progress import enter_stage
from evalflows.tasks.start import changes_in_words, open_or_resume, rows_to_start

FIXED_COLUMNS = ("snapshot_id", "repetitions", "target_version", "application_version", "evaluators")
"""What a resumed experiment must have in common with its first start."""


@task(cache_policy=NO_CACHE, persist_result=False)
def start_experiments(run: Context, resume: str | None = None) -> list[ExperimentRow]:
    """Start or resume one experiment per target; finished ones are returned unchanged.

    An experiment is resumed if it belongs to the run group `resume`, has the same run key, or if this flow run is
    re-run.

    Raise InputError if a resumed experiment was started from another spec, for a limit that Prefect does not have, and
    if the final examples have been run too often.
    """
    if resume:
        enter_stage(run, "resuming")
    spec, store = run.prepared.spec, run.store
    check_limits(spec.connections)
    rows = rows_to_start(run, resume, _rows, partial(changes_in_words, columns=FIXED_COLUMNS))
    _say_what_no_budget_limits(run.prepared)
    if spec.run_key is not None and resume is None:
        _say_what_is_reused(store, spec.run_key, rows)
    take_look(store, spec, rows[0].run_group, rows[0].git_commit)
    run.reset()
    return [open_or_resume(store, row) for row in rows]


def _rows(run: Context, group: str, columns: Mapping[str, Any]) -> list[ExperimentRow]:
    prepared, spec = run.prepared, run.prepared.spec
    query = "select n_examples from source.snapshots where snapshot_id = ?"
    ((n_examples,),) = run.store.query(query, [spec.dataset.snapshot])
    size = spec.batch or spec.chunk_size or chunk_size(n_examples, spec.repetitions, is_quick=is_quick(prepared))
    return [
        ExperimentRow(
            experiment_id=experiment_id(group, target.name),
            run_group=group,
            name=spec.experiment_name(target.name),
            dataset_name=spec.dataset.name,
            snapshot_id=spec.dataset.snapshot or "",
            n_examples=n_examples,
            repetitions=spec.repetitions,
            chunk_size=size,
            seed=None if spec.batch is None else ORDER_SEED,
            target=target.name,
            target_kind=target.kind,
            target_version=target_version(target, spec.connections),
            target_code=target_code(target),
            application_version=said_version(target),
            evaluators=to_described(prepared.described),
            **columns,
        )
        for target in spec.targets
    ]


def _say_what_no_budget_limits(prepared: PreparedExperiment) -> None:
    spec, owners = prepared.spec, dict[str, list[str]]()
    for limit in ("budget_usd", "max_calls"):
        if getattr(spec, limit) is not None:
            for owner in unlimited(spec.targets, prepared.of_runs, of_calls=limit == "max_calls"):
                owners.setdefault(owner, []).append(limit)
    for owner, limits in owners.items():
        print_note(f"{' and '.join(limits)} cannot limit the calls of {owner}, which are not recorded: {HOW_TO_RECORD}")


def _say_what_is_reused(store: Store, run_key: str, rows: Sequence[ExperimentRow]) -> None:
    query = "select count(*) from source.outputs where list_contains(?, experiment_id) and status = 'ok'"
    ((answers,),) = store.query(query, [[row.experiment_id for row in rows]])
    if answers:
        since = min(row.started_at for row in rows)
        print_note(f"reusing {answers} answers of {since:%Y-%m-%d %H:%M} UTC (run_key {run_key!r}); --fresh asks again")
