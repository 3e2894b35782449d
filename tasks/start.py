"""Start, resume and describe work that has an owner in the store, experiments and comparisons among it, say how resumed
work has changed, and hold its lease, so that one process at a time works on it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, TypeVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from evalflows.analysis.comparability import changed_parts, parts_in
from evalflows.analysis.final_looks import take_look
from evalflows.engine.budget_parts import AnySpec
from evalflows.engine.chunks import chunk_size
from evalflows.engine.may_call_models import HOW_TO_RECORD, unlimited
from evalflows.engine.order import ORDER_SEED
from evalflows.engine.pair_trials import n_trials, pair_chunk_size, pairs_of
from evalflows.engine.pairs import experiments_of
from evalflows.engine.parameter_trials import try_parameters
from evalflows.engine.prepare import PreparedComparison, PreparedExperiment, experiment_id, id_of_run_key
from evalflows.engine.quick_processes import is_quick
from evalflows.engine.revision import revision
from evalflows.engine.run_context import RunContext
from evalflows.engine.spec_targets import said_version, target_code, target_version
from evalflows.engine.votes import read_votes
from evalflows.llm import loop
from evalflows.specs.code_versions import listed
from evalflows.specs.comparison import ComparisonSpec, VotesSpec
from evalflows.specs.errors import UNREACHABLE, InputError
from evalflows.specs.escaping import print_note
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.traces import TraceEvaluationSpec
from evalflows.store.described import DescribedEvaluator, from_described, to_described
from evalflows.store.erasing import refuse_erased
from evalflows.store.leases import Lease, hold_lease, refuse_if_in_use
from evalflows.store.queries.lookup import newest_start
from evalflows.store.queries.progress import open_work
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ComparisonSetRow, ExperimentRow, after, dependent_id, new_id, now, to_json
from evalflows.store.row_specs import comparison_spec, experiment_spec
from evalflows.store.schemas import COMPARISON_TABLES, EXPERIMENT_TABLES
from evalflows.store.spool import ENDING_S, recover
from evalflows.store.store import Store
from evalflows.store.trace_records import evaluation_id
from evalflows.tasks.limits import check_limits
from evalflows.tasks.progress import enter_stage

Row = TypeVar("Row", bound=ExperimentRow | ComparisonSetRow)

KEPT = ("chunk_size", "seed", "started_at")
"""Columns that a resumed experiment or comparison keeps from its first start. A comparison's seed may not differ."""

FIXED_OF_COMPARISONS = (
    *("evaluators", "randomize_order", "both_orders", "order_rule"),
    *("seed", "failed_output_policy", "repetitions"),
)
"""What a resumed comparison must have in common with its first start."""

FIXED_OF_EXPERIMENTS = ("snapshot_id", "repetitions", "target_version", "application_version", "evaluators")
"""What a resumed experiment must have in common with its first start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an experiment or a comparison is stored as, and what makes it complete."""

    owner: str
    called: str  # in messages
    table: str  # of its own row
    tables: Sequence[str]  # in the order of sealing: that of its own row last
    results: Sequence[str]  # those that have rows once it is complete
    snapshots: Sequence[str]
    answers: int  # that it makes itself
    planned: int  # judgements by each evaluator
    evaluators: Sequence[str]  # names of what judges every subject
    summaries: Sequence[str] = ()  # names of what judges it as a whole


def work_of(row: ExperimentRow | ComparisonSetRow) -> Work:
    """Return the description of an experiment or a comparison."""
    if isinstance(row, ComparisonSetRow):
        return Work(
            owner=row.comparison_id,
            called=f"comparison {row.name!r} ({row.comparison_id})",
            table="comparison_sets",
            tables=COMPARISON_TABLES,
            results=["judgements"],
            snapshots=row.snapshot_ids,
            answers=0,
            planned=n_trials(row),
            evaluators=[
                evaluator.metric for evaluator in comparison_spec(row).evaluators
            ],  # none of votes, which are whole
        )
    spec, runs = experiment_spec(row), row.n_examples * row.repetitions
    return Work(
        owner=row.experiment_id,
        called=f"experiment {row.name!r} ({row.experiment_id})",
        table="experiments",
        tables=EXPERIMENT_TABLES,
        results=["outputs", *(["judgements"] if json.loads(row.evaluators) else [])],
        snapshots=[row.snapshot_id],
        answers=runs,
        planned=runs,
        evaluators=[
            *(evaluator.metric for evaluator in spec.evaluators),
            *(composite.name for composite in spec.composites),
        ],
        summaries=[evaluator.metric for evaluator in spec.summary_evaluators],
    )


def rows_to_start(
    run: RunContext[Any],
    resume: str | None,
    rows_of: Callable[[RunContext[Any], str, dict[str, Any]], Sequence[Row]],
    changes: Callable[[Row, Row], Iterable[str]],
) -> list[Row]:
    """Return the rows of experiments, or of a comparison, as they start now; `open_or_resume` writes them.

    One is resumed if it belongs to the run group `resume`, or has that id, if it has the same run key, or if this flow
    run is re-run. `rows_of` returns the rows of first starts, given the id of the run group or comparison and the
    columns that all have. `changes` yields in words what a resumed row, the second, has other than the first start.

    Raise InputError if there is nothing to resume, and if a resumed one was started from another spec.
    """
    spec, store = run.prepared.spec, run.store
    table, column, wanted = "comparison_sets", "comparison_id", "the id of a comparison"
    if isinstance(spec, ExperimentSpec):
        table, column, wanted = "experiments", "run_group", "the run group of experiments"
    if resume and not store.query(f"select 1 from source.{table} where {column} = ? limit 1", [resume]):
        raise InputError(f"resume: got {resume!r}, wanted {wanted} in {store.layout.root}")
    rows, found = rows_of(run, resume or start_id(spec), _shared_columns(spec)), list[Row]()
    newest = newest_start(store, table, [row.name for row in rows], spec.name, spec.run_key)
    for row in rows:
        if stored := store.read(table, work_of(row).owner):
            before: Row = stored[0]
            _check_unchanged(before, row, changes)
            kept = {name: getattr(before, name) for name in KEPT}
            found.append(replace(row, **kept, recorded_at=after(before.recorded_at)))
        else:  # later than any other of its name, whatever the clock says
            newest = after(newest)
            found.append(replace(row, started_at=newest, recorded_at=newest))
    return found


def _shared_columns(spec: ExperimentSpec | ComparisonSpec) -> dict[str, Any]:
    """Return the columns that the rows of all experiments and comparisons of a start share."""
    checkout = revision()
    return {
        "run_key": spec.run_key,
        "description": spec.description or None,
        "metadata": to_json(spec.model_dump(mode="json")["metadata"]) if spec.metadata else None,
        "tags": spec.tags,
        "spec": spec.model_dump_json(),
        "git_commit": checkout.commit,
        "git_branch": checkout.branch,
        "git_dirty": checkout.dirty,
        "evalflows_version": version("evalflows"),
        "flow_run_id": flow_run_id(),
        "state": "running",
        "budget_usd": spec.budget_usd,
        "max_calls": spec.max_calls,
        "started_at": now(),
    }


def _check_unchanged(before: Row, row: Row, changes: Callable[[Row, Row], Iterable[str]]) -> None:
    for change in changes(before, row):
        called = work_of(before).called
        remedy = "start a new one"
        if row.run_key:
            remedy = f"wanted a run_key other than {row.run_key!r}, or --fresh for a new {called.partition(' ')[0]}"
        raise InputError(f"{called}, started {before.started_at:%Y-%m-%d %H:%M} UTC: {change}; {remedy}")


def open_or_resume(store: Store, row: Row) -> Row:
    """Open an experiment or a comparison with the spooled rows of a dead process, and return its row.

    One that is finished stays sealed and is returned as it is, unless a comparison has another spec than before. Raise
    InputError if examples of its snapshots were erased.
    """
    work = work_of(row)
    recover(store, work.owner, ENDING_S)
    is_sealed = all(store.is_sealed(table, work.owner) for table in (work.table, *work.results))
    if is_sealed and not open_work(store, work.owner, UNREACHABLE):
        finished: Row = store.read(work.table, work.owner)[0]
        # With another spec, a comparison may have more pairs, or other slices.
        is_same = isinstance(row, ExperimentRow) or finished.spec == row.spec
        # A version that went by a clock that was set back sealed experiments as running.
        if is_same and finished.state != "running":
            return finished
    for snapshot in work.snapshots:
        refuse_erased(store, snapshot)
    store.reopen(work.owner, tuple(reversed(work.tables)))
    store.append(work.table, work.owner, "start", [row])
    return row


def flow_run_id() -> str | None:
    """Return the id of the current flow run; None outside of one."""
    context = FlowRunContext.get()
    return str(context.flow_run.id) if context and context.flow_run else None


def id_of_start(kind: str) -> str:
    """Return an id for the experiment or comparison to start: stable if the flow run is re-run, new outside a flow."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.created is None:
        return new_id(kind)
    return dependent_id(kind, context.flow_run.created, "flow_run", str(context.flow_run.id))


def start_id(spec: AnySpec) -> str:
    """Return the id of the run group, or of the comparison, that a spec starts: the same for a run key, and for a
    re-run flow run. That of a trace evaluation is always that of its name."""
    if isinstance(spec, TraceEvaluationSpec):
        return evaluation_id(spec.name)
    kind: Literal["group", "cmp"] = "group" if isinstance(spec, ExperimentSpec) else "cmp"
    return id_of_start(kind) if spec.run_key is None else id_of_run_key(kind, spec.run_key)


def changes_in_words(before: Any, row: Any, columns: Iterable[str]) -> Iterator[str]:
    """Yield in words how a resumed experiment or comparison differs in some columns from its first start."""
    for name in columns:
        old, new = getattr(before, name), getattr(row, name)
        if old == new or (name == "evaluators" and _without_live_references(old) == _without_live_references(new)):
            continue
        if name == "application_version" and new is None:  # each answer says it, if at all
            continue
        if name == "target_version":
            parts = changed_parts(parts_in(row.target_code), parts_in(before.target_code))
            yield f"the target has changed since: {listed(parts) if parts else 'its settings'}"
        elif name == "evaluators":  # name only those that differ
            parts = changed_parts(_code(new), _code(old))
            old, new = (", ".join(sorted(_labels(a) - _labels(b))) or "fewer" for a, b in ((old, new), (new, old)))
            yield f"then with evaluators {old}, now with {new}" + (f" ({listed(parts)} changed)" if parts else "")
        else:
            yield f"then with {name} {old}, now with {new}"


def _without_live_references(evaluators: str) -> list[DescribedEvaluator]:
    """Return the evaluators of a row without references to live functions.

    These differ between processes, though the versions are the same.
    """
    return [
        replace(evaluator, use=None) if (evaluator.use or "").startswith("live:") else evaluator
        for evaluator in from_described(evaluators)
    ]


def _labels(evaluators: str) -> set[str]:
    """Return name, version and sample of each evaluator of a row."""
    return {
        f"{evaluator.name}@{evaluator.version}" + (f" of {evaluator.sample}" if evaluator.sample is not None else "")
        for evaluator in from_described(evaluators)
    }


def _code(evaluators: str) -> dict[str, str]:
    """Return a hash of each part of the user's code in the evaluators of a row."""
    return {name: digest for evaluator in from_described(evaluators) for name, digest in (evaluator.code or {}).items()}


@task(cache_policy=NO_CACHE, persist_result=False)
def start_comparison(run: RunContext[PreparedComparison], resume: str | None = None) -> ComparisonSetRow:
    """Start or resume a comparison; a finished one is returned unchanged.

    A comparison is resumed if its id is `resume`, it has the same run key, or this flow run is re-run. It may have more
    experiments than before; then only the new pairs are judged.

    Raise InputError if it was started from another spec, if there is no comparison `resume`, and for a limit that
    Prefect does not have.
    """
    if resume:
        enter_stage(run, "resuming")
    check_limits(run.prepared.spec.connections)
    (row,) = rows_to_start(run, resume, _comparison_rows, _changes)
    run.reset()
    try_parameters(run, row, n_trials(row))
    return open_or_resume(run.store, row)


def _comparison_rows(
    run: RunContext[PreparedComparison], identity: str, columns: Mapping[str, Any]
) -> list[ComparisonSetRow]:
    store, spec = run.store, run.prepared.spec
    row = ComparisonSetRow(
        comparison_id=identity,
        name=spec.name,
        experiments=spec.experiments,
        baseline_experiment_id=spec.baseline,
        evaluators=to_described(run.prepared.described),
        randomize_order=spec.randomize_order,
        both_orders=spec.both_orders,
        order_rule=spec.order_rule,
        failed_output_policy=spec.failed_output,
        seed=spec.seed,
        **(_of_experiments(store, spec) if spec.votes is None else _of_votes(spec.votes)),
        **columns,
    )
    return [row]


def _of_experiments(store: Store, spec: ComparisonSpec) -> dict[str, Any]:
    experiments = experiments_of(store, spec.experiments)
    shared, repetitions = shared_examples(store, experiments), min(row.repetitions for row in experiments)
    size = spec.chunk_size or pair_chunk_size(len(shared.examples), repetitions, len(pairs_of(spec)))
    return {
        "snapshot_ids": list(dict.fromkeys(row.snapshot_id for row in experiments)),
        "repetitions": repetitions,
        "chunk_size": spec.batch or size,
        "n_shared": len(shared.examples),
        "n_left_out": shared.left_out,
    }


def _of_votes(spec: VotesSpec) -> dict[str, Any]:
    votes = read_votes(spec).votes
    n_prompts = len({vote.prompt for vote in votes})
    counts = {"n_shared": n_prompts, "n_left_out": 0, "n_votes": len(votes)}
    return {"snapshot_ids": [], "repetitions": 1, "chunk_size": len(votes), **counts}


def _changes(before: ComparisonSetRow, row: ComparisonSetRow) -> Iterator[str]:
    """Yield in words how a resumed comparison differs in more than added experiments."""
    yield from changes_in_words(before, row, FIXED_OF_COMPARISONS)
    if (was := comparison_spec(before).batch) != (now := comparison_spec(row).batch):
        yield f"then {_batches(was)}, now {_batches(now)}"
    if (old := _pairs(before)) != (new := _pairs(row)):
        yield f"then with pairs: {old}, now with {new}"
    if row.experiments[: len(before.experiments)] != before.experiments:
        old, new = ", ".join(before.experiments), ", ".join(row.experiments)
        yield f"then with experiments {old}, now with {new} (new ones may only be appended)"
    if row.n_shared != before.n_shared:
        yield f"then with {before.n_shared} shared examples, with the new experiments {row.n_shared}"


def _batches(size: int | None) -> str:
    return "not in batches" if size is None else f"in batches of {size}"


def _pairs(row: ComparisonSetRow) -> str:
    """Return which pairs are compared, independent of added experiments."""
    pairs = comparison_spec(row).pairs
    return pairs if pairs == "all" else f"those with {row.baseline_experiment_id} alone"


@contextmanager
def lease_of(spec: AnySpec, resume: str | None = None) -> Iterator[Lease]:
    """Hold the lease of what a spec starts during a block, so that nobody else pays for the same answers.

    If another process has it, `resume` raises InputError: somebody resumes what is running. A start waits, since it has
    the same run key, is the same flow run, or of the same trace evaluation: when the other one has ended, it only does
    what is left.
    """
    held = resume or start_id(spec)
    with loop.ends_with() as end, hold_lease(Store(), held, _called(spec), wait=resume is None, on_loss=end) as lease:
        yield lease


def refuse_if_running(spec: ExperimentSpec | ComparisonSpec, resume: str | None) -> None:
    """Raise InputError if what shall be resumed is running, before Prefect starts."""
    if resume is not None:
        refuse_if_in_use(Store(), resume, _called(spec))


def _called(spec: AnySpec) -> str:
    if isinstance(spec, ComparisonSpec):
        return f"comparison {spec.title!r}"
    return f"{'experiment' if isinstance(spec, ExperimentSpec) else 'trace evaluation'} {spec.name!r}"


@task(cache_policy=NO_CACHE, persist_result=False)
def start_experiments(run: RunContext[PreparedExperiment], resume: str | None = None) -> list[ExperimentRow]:
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
    rows = rows_to_start(run, resume, _experiment_rows, partial(changes_in_words, columns=FIXED_OF_EXPERIMENTS))
    _say_what_no_budget_limits(run.prepared)
    if spec.run_key is not None and resume is None:
        _say_what_is_reused(store, spec.run_key, rows)
    take_look(store, spec, rows[0].run_group, rows[0].git_commit)
    run.reset()
    try_parameters(run, rows[0], rows[0].n_examples * rows[0].repetitions)
    return [open_or_resume(store, row) for row in rows]


def _experiment_rows(
    run: RunContext[PreparedExperiment], group: str, columns: Mapping[str, Any]
) -> list[ExperimentRow]:
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
