"""Starting a comparison, or going on with one that was started; also with more experiments."""

import json
from importlib.metadata import version

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import FlowRunContext

from specs.comparison import ComparisonSpec
from specs.errors import UNREACHABLE, InputError
from store.comparisons import open_judgements
from store.parquet import Store
from store.records import ComparisonSetRow, dependent_id, new_id, now, to_json
from store.repository import revision
from store.schemas import COMPARISON_TABLES
from store.spool import recover
from tasks.comparison import experiments_of, forget_comparison
from tasks.pairs import chunk_size, pairs_of
from tasks.provider_limit import limit_name, limit_size
from tasks.resolve import bind_evaluator, evaluator_version
from tasks.shared_examples import shared_examples
from tasks.start import NO_TIME, without_places

SAME = ("evaluators", "randomize_order", "both_orders", "seed", "failed_output_policy", "repetitions")
"""What must not differ between the parts of one comparison."""


@task(cache_policy=NO_CACHE, persist_result=False)
def start_comparison(spec: ComparisonSpec, resume: str | None = None) -> ComparisonSetRow:
    """A comparison, begun or gone on with; one with nothing left to do is as it was.

    Gone on with is the comparison `resume`, that of the same run key, or of this very flow run, run again. It may have
    more experiments than before: then only their pairs are judged.

    Raises InputError where it was made from something else than this spec, where there is no comparison `resume`, and
    for a limit that Prefect does not know.
    """
    for connection in spec.connections.values():
        if name := limit_name(connection):
            limit_size(name)
    store, identity = Store(), resume or _identity(spec)
    found = store.read("comparison_sets", identity)
    before: ComparisonSetRow | None = found[0] if found else None
    if resume and before is None:
        raise InputError(f"resume: got {resume!r}, wanted the id of a comparison in {store.layout.root}")
    row = _row(store, spec, identity, before)
    if before:
        _refuse_another(before, row)
    return _begin(store, row, before)


def _identity(spec: ComparisonSpec) -> str:
    """A run key gives it twice, and a flow run run again."""
    if spec.run_key is not None:
        return dependent_id("cmp", NO_TIME, "run_key", spec.run_key)
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.created is None:
        return new_id("cmp")
    return dependent_id("cmp", context.flow_run.created, "flow_run", str(context.flow_run.id))


def _row(store: Store, spec: ComparisonSpec, identity: str, before: ComparisonSetRow | None) -> ComparisonSetRow:
    experiments = experiments_of(store, spec.experiments)
    shared, repetitions = shared_examples(store, experiments), min(one.repetitions for one in experiments)
    size = chunk_size(len(shared.examples), repetitions, len(pairs_of(spec)))
    code, context = revision(), FlowRunContext.get()
    return ComparisonSetRow(
        comparison_id=identity,
        run_key=spec.run_key,
        name=spec.name,
        description=spec.description or None,
        metadata=to_json(spec.model_dump(mode="json")["metadata"]) if spec.metadata else None,
        tags=spec.tags,
        experiments=spec.experiments,
        baseline_experiment_id=spec.baseline,
        snapshot_ids=list(dict.fromkeys(one.snapshot_id for one in experiments)),
        evaluators=_evaluators(spec),
        spec=spec.model_dump_json(),
        randomize_order=spec.randomize_order,
        both_orders=spec.both_orders,
        failed_output_policy=spec.failed_output,
        seed=spec.seed,
        repetitions=repetitions,
        chunk_size=before.chunk_size if before else spec.chunk_size or size,
        n_shared=len(shared.examples),
        n_left_out=shared.left_out,
        git_commit=code.commit,
        git_branch=code.branch,
        git_dirty=code.dirty,
        evalflows_version=version("evalflows"),
        flow_run_id=str(context.flow_run.id) if context and context.flow_run else None,
        state="running",
        budget_usd=spec.budget_usd,
        max_calls=spec.max_calls,
        started_at=before.started_at if before else now(),
    )


def _evaluators(spec: ComparisonSpec) -> str:
    described = [
        {
            "name": evaluator.metric,
            "use": evaluator.use,
            "version": evaluator_version(evaluator, bind_evaluator(evaluator, "pair"), spec.connections, "pair"),
            "declared_version": evaluator.version,
        }
        for evaluator in spec.evaluators
    ]
    return to_json(described)


def _refuse_another(before: ComparisonSetRow, row: ComparisonSetRow) -> None:
    remedy = f"wanted a run_key other than {row.run_key!r}" if row.run_key else "start another one"
    where = f"comparison {before.name!r} ({before.comparison_id}): began with"
    for name in SAME:
        old, new = getattr(before, name), getattr(row, name)
        if old != new and not (name == "evaluators" and without_places(old) == without_places(new)):
            old, new = (_labels(one) if name == "evaluators" else one for one in (old, new))
            raise InputError(f"{where} {name} {old}, got {new}; {remedy}")
    ways = [_pairs(one) for one in (before, row)]
    if ways[0] != ways[1]:
        raise InputError(f"{where} pairs: {ways[0]}, got {ways[1]}; {remedy}")
    if row.experiments[: len(before.experiments)] != before.experiments:
        old, new = ", ".join(before.experiments), ", ".join(row.experiments)
        raise InputError(f"{where} the experiments {old}, got {new}: more may follow these; {remedy}")
    if row.n_shared != before.n_shared:
        raise InputError(f"{where} {before.n_shared} shared examples, with those that follow {row.n_shared}; {remedy}")


def _pairs(row: ComparisonSetRow) -> str:
    """Which pairs of experiments are compared, whatever experiments may follow."""
    how = ComparisonSpec.model_validate_json(row.spec).pairs
    return how if how == "all" else f"with {row.baseline_experiment_id} alone"


def _labels(evaluators: str) -> str:
    return ", ".join(f"{one['name']}@{one['version']}" for one in json.loads(evaluators))


def _begin(store: Store, row: ComparisonSetRow, before: ComparisonSetRow | None) -> ComparisonSetRow:
    """Open the comparison, with what a dead process has left of it, unless it has nothing left to do."""
    identity = row.comparison_id
    forget_comparison(identity)
    recover(store, identity)
    same = before is not None and before.spec == row.spec  # else more pairs are asked for, or to be told otherwise
    if store.is_sealed("comparison_sets", identity) and same and not open_judgements(store, identity, UNREACHABLE):
        (finished,) = store.read("comparison_sets", identity)
        return finished  # type: ignore[no-any-return]
    store.reopen(identity, tuple(reversed(COMPARISON_TABLES)))
    store.append("comparison_sets", identity, "start", [row])
    return row
