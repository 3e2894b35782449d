"""How robust the ranking by a composite is to its weights."""

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.robustness import composite_runs, criteria, pareto_check, robustness_batch, weights_check
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.metrics import CompositeSpec
from evalflows.store.described import experiment_spec
from evalflows.store.queries.lookup import find_experiments, run_groups
from evalflows.store.records import ExperimentRow
from evalflows.store.store import Store

CHANGE = 0.2
"""Default relative change of each weight."""


@task(cache_policy=NO_CACHE, persist_result=False)
def composite_robustness(
    experiment: str, composites: Sequence[str] = (), change: float = CHANGE, over: Sequence[str] = ()
) -> str:
    """Publish how other weights would change the ranking of a run group, and its Pareto front. Return the run group.

    `experiment` names a run group or one of its experiments. `composites` defaults to all of the spec's composites;
    `over` names the metrics of the front. Earlier results of the same run group are replaced. Raise InputError for an
    unknown experiment, composite or metric, and for a run group with one target.
    """
    store = Store()
    rows = _rows(store, experiment)
    spec = experiment_spec(rows[0])
    if not 0 < change < 1:
        raise InputError(f"change: got {change:g}, wanted more than 0 and less than 1, such as 0.2 for 20 %")
    batch = robustness_batch(rows[0].run_group)
    runs = [composite_runs(store, rows, composite) for composite in _chosen(spec, composites)]
    front = criteria(store, rows, spec, over)
    checks = [weights_check(batch, composite, change) for composite in runs]
    checks += [pareto_check(batch, rows, front)] if len(front.metrics) > 1 else []
    if not checks:
        raise InputError(
            f"{spec.name}: has no composite and fewer than two metrics, wanted at least one of `composites`"
        )
    store.publish("checks", batch, checks)
    return rows[0].run_group


def _rows(store: Store, experiment: str) -> list[ExperimentRow]:
    """Return all experiments of the run group that `experiment` refers to."""
    groups = run_groups(store, find_experiments(store, experiment))
    identities = find_experiments(store, groups[0])
    if len(identities) < 2:
        raise InputError(f"experiment {experiment!r}: has one target, wanted two or more in its run group")
    return [store.read("experiments", identity)[0] for identity in identities]


def _chosen(spec: ExperimentSpec, names: Sequence[str]) -> list[CompositeSpec]:
    known = {composite.name: composite for composite in spec.composites}
    for name in names:
        if name not in known:
            wanted = f"one of {', '.join(known)}" if known else "an experiment with `composites`"
            raise InputError(f"composite {name!r}: not in {spec.name!r}, wanted {wanted}")
    return [known[name] for name in names] if names else list(known.values())
