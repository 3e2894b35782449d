"""Start or resume experiments."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.differences.target_changes import changed_parts, parts_in
from evalflows.execution.chunks import chunk_size
from evalflows.execution.identity import (
    code_of_evaluators,
    evaluator_labels,
    experiment_id,
    group_of_run_key,
    without_live_references,
)
from evalflows.execution.prepared import prepared_experiments
from evalflows.execution.quick_processes import is_quick
from evalflows.execution.resolve import said_version, target_code, target_version
from evalflows.execution.running_experiment import forget_experiment
from evalflows.execution.unrecorded_calls import unlimited
from evalflows.specs.code_parts import listed
from evalflows.specs.errors import UNREACHABLE, InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.safe_text import print_note
from evalflows.specs.target import TargetSpec
from evalflows.store.erasing.refused import refuse_erased
from evalflows.store.parquet import Store
from evalflows.store.queries.lookup import newest_start
from evalflows.store.queries.progress import has_all_files, open_work
from evalflows.store.records import ExperimentRow, to_json
from evalflows.store.schemas import EXPERIMENT_TABLES
from evalflows.store.spool import ENDING_S, recover
from evalflows.tasks.provider_limit import check_limits
from evalflows.tasks.start_columns import id_of_start, start_columns

FIXED_COLUMNS = ("snapshot_id", "repetitions", "target_version", "application_version", "evaluators")
"""What a resumed experiment must have in common with its first start."""

ORDER_SEED = 0
"""Seed of the order of the examples if a gate has interim analyses: each batch must be a random sample."""


@task(cache_policy=NO_CACHE, persist_result=False)
def start_experiments(spec: ExperimentSpec, resume: str | None = None) -> list[ExperimentRow]:
    """Start or resume one experiment per target; finished ones are returned unchanged.

    An experiment is resumed if it belongs to the run group `resume`, has the same run key, or if this flow run is
    re-run.

    Raise InputError if a resumed experiment was started from another spec, and for a limit that Prefect does not have.
    """
    check_limits(spec.connections)
    store, group = Store(), resume or run_group(spec)
    if resume and not store.query("select 1 from source.experiments where run_group = ? limit 1", [resume]):
        raise InputError(f"resume: got {resume!r}, wanted the run group of experiments in {store.layout.root}")
    _say_what_no_budget_limits(spec)
    rows = [_row(store, spec, target, group) for target in spec.targets]
    if spec.run_key is not None and resume is None:
        _say_what_is_reused(store, spec.run_key, rows)
    return [_open(store, row) for row in rows]


def _say_what_no_budget_limits(spec: ExperimentSpec) -> None:
    owners: dict[str, list[str]] = {}
    for limit in ("budget_usd", "max_calls"):
        if getattr(spec, limit) is not None:
            evaluators = prepared_experiments.of(spec).of_runs
            for owner in unlimited(spec.targets, evaluators, of_calls=limit == "max_calls"):
                owners.setdefault(owner, []).append(limit)
    for owner, limits in owners.items():
        print_note(
            f"{' and '.join(limits)} cannot limit the calls of {owner}, which are not recorded: wrap the client "
            "(evalflows.llm.wrap), or name the `usage` field of an HTTP application's responses"
        )


def _say_what_is_reused(store: Store, run_key: str, rows: Sequence[ExperimentRow]) -> None:
    query = "select count(*) from source.outputs where list_contains(?, experiment_id) and status = 'ok'"
    ((answers,),) = store.query(query, [[row.experiment_id for row in rows]])
    if answers:
        since = min(row.started_at for row in rows)
        print_note(f"reusing {answers} answers of {since:%Y-%m-%d %H:%M} UTC (run_key {run_key!r}); --fresh asks again")


def run_group(spec: ExperimentSpec) -> str:
    """Return the id shared by the experiments of one start: the same for a run key, and for a re-run flow run."""
    return id_of_start("group") if spec.run_key is None else group_of_run_key(spec.run_key)


def _row(store: Store, spec: ExperimentSpec, target: TargetSpec, group: str) -> ExperimentRow:
    """Return the row of a running experiment. A resumed one keeps its chunk size, order and start time."""
    identity = experiment_id(group, target.name)
    stored = store.read("experiments", identity)
    before: ExperimentRow | None = stored[0] if stored else None
    n_examples = _n_examples(store, spec)
    code = target_code(target)
    size = (
        spec.batch
        or spec.chunk_size
        or chunk_size(n_examples, spec.repetitions, is_quick=is_quick(prepared_experiments.of(spec)))
    )
    row = ExperimentRow(
        experiment_id=identity,
        run_group=group,
        name=spec.experiment_name(target.name),
        dataset_name=spec.dataset.name,
        snapshot_id=spec.dataset.snapshot or "",
        n_examples=n_examples,
        repetitions=spec.repetitions,
        chunk_size=before.chunk_size if before else size,
        seed=before.seed if before else None if spec.batch is None else ORDER_SEED,
        target=target.name,
        target_kind=target.kind,
        target_version=target_version(target, spec.connections),
        target_code=None if code is None else to_json(code),
        application_version=said_version(target),
        evaluators=to_json([*prepared_experiments.of(spec).described.values()]),
        **start_columns(spec, before, newest_start(store, spec.experiment_name(target.name), spec.name)),
    )
    if before:
        _check_unchanged(before, row)
    return row


def _n_examples(store: Store, spec: ExperimentSpec) -> int:
    query = "select n_examples from source.snapshots where snapshot_id = ?"
    return int(store.query(query, [spec.dataset.snapshot])[0][0])


def _check_unchanged(before: ExperimentRow, row: ExperimentRow) -> None:
    """Raise InputError if a resumed experiment differs in a fixed column."""
    for name in FIXED_COLUMNS:
        old, new = getattr(before, name), getattr(row, name)
        if old == new or (name == "evaluators" and without_live_references(old) == without_live_references(new)):
            continue
        if name == "application_version" and new is None:  # said by each answer, if at all
            continue
        remedy = "start a new one"
        if row.run_key:
            remedy = f"wanted a run_key other than {row.run_key!r}, or --fresh for a new experiment"
        raise InputError(
            f"experiment {before.name!r} ({before.experiment_id}), started {before.started_at:%Y-%m-%d %H:%M} UTC: "
            f"{_change(name, before, row)}; {remedy}"
        )


def _change(column: str, before: ExperimentRow, row: ExperimentRow) -> str:
    """Return what differs in a fixed column, in words."""
    old, new = getattr(before, column), getattr(row, column)
    if column == "evaluators":  # name only those that differ
        old, new = (
            ", ".join(sorted(evaluator_labels(a) - evaluator_labels(b))) or "fewer" for a, b in ((old, new), (new, old))
        )
        parts = changed_parts(code_of_evaluators(row.evaluators), code_of_evaluators(before.evaluators))
        return f"then with evaluators {old}, now with {new}" + (f" ({listed(parts)} changed)" if parts else "")
    if column == "target_version":
        parts = changed_parts(parts_in(row.target_code), parts_in(before.target_code))
        return f"the target has changed since: {listed(parts) if parts else 'its settings'}"
    return f"then with {column} {old}, now with {new}"


def _open(store: Store, row: ExperimentRow) -> ExperimentRow:
    """Open the experiment with the spooled rows of a dead process, and return its row; a finished one stays sealed.

    Raise InputError if examples of its snapshot were erased.
    """
    identity = row.experiment_id
    forget_experiment(identity, row.run_group)
    recover(store, identity, ENDING_S)
    if store.is_sealed("experiments", identity) and not open_work(store, identity, UNREACHABLE):
        finished: ExperimentRow = store.read("experiments", identity)[0]
        # A version that went by a clock that was set back sealed experiments as running.
        if finished.state != "running" and has_all_files(store, finished):
            return finished
    refuse_erased(store, row.snapshot_id)
    store.reopen(identity, tuple(reversed(EXPERIMENT_TABLES)))
    store.append("experiments", identity, "start", [row])
    return row
