"""Check and resolve the spec of a comparison before anything is written or paid."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.execution.preflight.check_engine import check_engine
from evalflows.execution.preflight.check_spec import check_pairwise
from evalflows.execution.prepared import PreparedComparison, prepare_comparison, prepared_comparisons
from evalflows.execution.running_comparison import experiments_of
from evalflows.execution.votes import read_votes
from evalflows.specs.comparison import ComparisonSpec
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.votes import VotesSpec
from evalflows.store.parquet import Store
from evalflows.store.queries.comparisons import item_metrics
from evalflows.store.queries.lookup import find_experiments
from evalflows.store.queries.progress import spent_by_group
from evalflows.store.queries.shared_examples import shared_examples
from evalflows.store.records import ExperimentRow


@task(cache_policy=NO_CACHE, persist_result=False)
def resolve_comparison(spec: ComparisonSpec) -> ComparisonSpec:
    """Check and resolve the spec, unless this process has just done so before starting the flow."""
    return spec if prepared_comparisons.has(spec) else check_and_resolve(spec)


def check_and_resolve(spec: ComparisonSpec) -> ComparisonSpec:
    """Check a comparison's spec and resolve its references. Raise InputError, with nothing written.

    In the returned spec experiments are ids, prompts are texts, and shared connections are included.
    """
    if spec.votes is not None:
        return _resolve_votes(spec, spec.votes)
    store = Store()
    rows = experiments_of(store, _identities(store, spec))
    resolved = {
        "name": spec.name or " vs ".join(row.name for row in rows),
        "experiments": [row.experiment_id for row in rows],
        "baseline": _baseline(store, spec, rows),
    }
    prepared = prepare_comparison(spec.model_copy(update=resolved))
    _check(store, prepared, rows)
    prepared_comparisons.keep(prepared)
    return prepared.spec


def _resolve_votes(spec: ComparisonSpec, given: VotesSpec) -> ComparisonSpec:
    systems = read_votes(given).systems
    named = [
        *(("experiments", name) for name in spec.experiments),
        *([("baseline", spec.baseline)] * bool(spec.baseline)),
    ]
    for field, name in named:
        if name not in systems:
            known = f"{', '.join(systems[:10])}{', …' if len(systems) > 10 else ''}"
            raise InputError(f"{field}: got {name!r}, wanted a system of {given.path}: {known}")
    if spec.experiments and set(spec.experiments) != set(systems):
        raise InputError(f"experiments: got {len(spec.experiments)} beside votes, which name {len(systems)} themselves")
    changes = {"name": spec.title, "experiments": systems, "baseline": spec.baseline or systems[0]}
    prepared = prepare_comparison(spec.model_copy(update=changes))
    prepared_comparisons.keep(prepared)
    return prepared.spec


_SHARED_FIELDS = (
    *("confidence_level", "connections", "chunk_retries", "chunk_retry_delay_s", "breaker_window", "breaker_pause_s"),
    "task_runner",
)
"""Fields that the comparison takes over from the experiment's spec."""


def comparison_of(spec: ExperimentSpec, experiments: Sequence[ExperimentRow]) -> ComparisonSpec:
    """Return the comparison of its own experiments that an experiment's spec asks for; a re-run gives the same one."""
    if spec.compare is None:
        raise ValueError("compare: got a spec without it")
    base = next(row for row in experiments if row.target == (spec.baseline or experiments[0].target))
    calls, usd, _ = spent_by_group(Store(), base.run_group)
    return ComparisonSpec(
        name=spec.name,
        description=spec.description,
        metadata=spec.metadata,
        tags=spec.tags,
        experiments=[row.experiment_id for row in experiments],
        baseline=base.experiment_id,
        run_key=base.run_group,
        use_cache=spec.use_cache,
        budget_usd=None if spec.budget_usd is None else max(0.0, spec.budget_usd - usd),  # the rest of the budget
        max_calls=None if spec.max_calls is None else max(0, spec.max_calls - calls),
        **{name: getattr(spec, name) for name in _SHARED_FIELDS},
        **spec.compare.model_dump(),
    )


def _identities(store: Store, spec: ComparisonSpec) -> list[str]:
    """Return the ids of the named experiments, each once, in order."""
    identities = [identity for reference in spec.experiments for identity in find_experiments(store, reference)]
    if len(set(identities)) < 2:
        raise InputError(
            f"experiments: got {', '.join(spec.experiments)}, which is one experiment, wanted at least two"
        )
    return list(dict.fromkeys(identities))


def _baseline(store: Store, spec: ComparisonSpec, rows: Sequence[ExperimentRow]) -> str:
    if spec.baseline is None:
        return rows[0].experiment_id
    (identity,) = find_experiments(store, spec.baseline, just_one=True)
    if identity not in [row.experiment_id for row in rows]:
        raise InputError(f"baseline: got {spec.baseline!r}, wanted one of {', '.join(row.name for row in rows)}")
    return identity


def _check(store: Store, prepared: PreparedComparison, rows: Sequence[ExperimentRow]) -> None:
    check_engine(prepared.spec.task_runner, (), prepared.evaluators)
    shared = shared_examples(store, rows)
    names = " and ".join(row.name for row in rows)
    if not shared.examples:
        why = f"{shared.changed} with the same id but different inputs" if shared.changed else "no ids in common"
        raise InputError(f"experiments: {names} share no example ({why})")
    spec, metrics = prepared.spec, item_metrics(store, prepared.spec.experiments)
    check_pairwise(prepared.evaluators, spec.slice_by, spec, shared.examples, metrics)
