"""What a comparison's spec says, checked and settled before anything is written or paid."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.comparison import ComparisonSpec
from specs.errors import InputError
from specs.experiment import ExperimentSpec
from store.comparisons import item_metrics
from store.lookup import find_experiments
from store.parquet import Store
from store.progress import spent_by_group
from store.records import ExperimentRow
from tasks.check import check_pairwise
from tasks.comparison import experiments_of
from tasks.connections import named_by_pairwise, with_shared
from tasks.prompts import with_prompt
from tasks.shared_examples import shared_examples

_last_settled: tuple[str, ComparisonSpec] | None = None


@task(cache_policy=NO_CACHE, persist_result=False)
def settle_comparison(spec: ComparisonSpec) -> ComparisonSpec:
    """The spec, checked whole, with its experiments named by their ids. See `settled`.

    What this process has just settled, on its way to the flow, it does not read and check again.
    """
    return spec if _last_settled == (Store().layout.root, spec) else settled(spec)


def settled(spec: ComparisonSpec) -> ComparisonSpec:
    """Check everything that a spec says. Raises InputError, with nothing written.

    What it says of names and files that move is settled: experiments are ids, prompts are texts, shared connections
    stand in the spec.
    """
    store = Store()
    rows = experiments_of(store, _identities(store, spec))
    evaluators = [with_prompt(evaluator) for evaluator in spec.evaluators]
    spec = spec.model_copy(
        update={
            "name": spec.name or " vs ".join(row.name for row in rows),
            "experiments": [row.experiment_id for row in rows],
            "baseline": _baseline(store, spec, rows),
            "evaluators": evaluators,
            "connections": with_shared(spec.connections, named_by_pairwise(evaluators)),
        }
    )
    _check(store, spec, rows)
    global _last_settled
    _last_settled = store.layout.root, spec
    return spec


def comparison_of(spec: ExperimentSpec, experiments: Sequence[ExperimentRow]) -> ComparisonSpec:
    """The comparison that an experiment's spec asks for, of its own experiments; run again, it is the same one."""
    if spec.compare is None:
        raise ValueError("compare: got a spec without it")
    base = next(row for row in experiments if row.target == (spec.baseline or experiments[0].target))
    calls, usd, _ = spent_by_group(Store(), base.run_group)
    of_both = ("level", "connections", "chunk_retries", "chunk_retry_delay_s", "breaker_window", "breaker_pause_s")
    return ComparisonSpec(
        name=spec.name,
        description=spec.description,
        metadata=spec.metadata,
        tags=spec.tags,
        experiments=[row.experiment_id for row in experiments],
        baseline=base.experiment_id,
        run_key=base.run_group,
        fresh=spec.fresh,
        budget_usd=None if spec.budget_usd is None else max(0.0, spec.budget_usd - usd),  # what the answers left of it
        max_calls=None if spec.max_calls is None else max(0, spec.max_calls - calls),
        **{name: getattr(spec, name) for name in of_both},
        **spec.compare.model_dump(),
    )


def _identities(store: Store, spec: ComparisonSpec) -> list[str]:
    """The experiments that the names stand for, each once, in their order."""
    found = [identity for reference in spec.experiments for identity in find_experiments(store, reference)]
    if len(set(found)) < 2:
        raise InputError(
            f"experiments: got {', '.join(spec.experiments)}, which is one experiment, wanted two at least"
        )
    return list(dict.fromkeys(found))


def _baseline(store: Store, spec: ComparisonSpec, rows: Sequence[ExperimentRow]) -> str:
    if spec.baseline is None:
        return rows[0].experiment_id
    (identity,) = find_experiments(store, spec.baseline, just_one=True)
    if identity not in [row.experiment_id for row in rows]:
        raise InputError(f"baseline: got {spec.baseline!r}, wanted one of {', '.join(row.name for row in rows)}")
    return identity


def _check(store: Store, spec: ComparisonSpec, rows: Sequence[ExperimentRow]) -> None:
    shared = shared_examples(store, rows)
    names = " and ".join(row.name for row in rows)
    if not shared.examples:
        why = f"{shared.changed} have the same id and other inputs" if shared.changed else "none has the same id"
        raise InputError(f"experiments: {names} share no example ({why})")
    check_pairwise(spec, spec, shared.examples, item_metrics(store, spec.experiments))
