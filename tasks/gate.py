"""Before and after a gate's run: whether it could decide at all, and what it decided."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.errors import InputError
from specs.experiment import ExperimentSpec
from specs.gate import GateSpec
from store.parquet import Store
from store.records import ExperimentRow
from tasks.baselines import baseline_row, no_baseline
from tasks.bridge import bridges_of, metrics_to_bridge
from tasks.snapshot import freeze_dataset


@task(cache_policy=NO_CACHE, persist_result=False)
def check_gates(spec: ExperimentSpec) -> ExperimentSpec:
    """The spec, checked and its dataset frozen, where its gates could decide.

    Raises InputError, before anything is paid, for a spec without gates, a baseline that nobody approved, and one that
    was judged by other evaluators than the candidate will be, without a bridge.
    """
    if not spec.gates:
        raise InputError(f"spec {spec.name!r}: got no gates, wanted at least one: {{name: release, guards: …}}")
    spec, store = freeze_dataset.fn(spec), Store()
    for gate in spec.gates:
        if gate.compares and spec.baseline_target(gate) is None:
            _check_baseline(spec, gate, baseline_row(store, spec, gate, []))
    return spec


def _check_baseline(spec: ExperimentSpec, gate: GateSpec, baseline: ExperimentRow | None) -> None:
    if baseline is None:
        raise InputError(f"gate {gate.name!r}: {no_baseline(spec, gate)}")
    if gate.bridge is None:
        for why in metrics_to_bridge(spec, gate, baseline).values():
            raise InputError(
                f"gate {gate.name!r}: refused, {why}; wanted the same, or `bridge: {{sample: 100}}`, "
                f"by which the newer one judges some of the baseline's answers too"
            )


@task(cache_policy=NO_CACHE, persist_result=False)
def bridges(spec: ExperimentSpec) -> list[ExperimentSpec]:
    """What is to be run before, so that gates can compare with baselines that other judges judged."""
    return bridges_of(Store(), spec)


def experiment_rows(experiments: list[str]) -> list[ExperimentRow]:
    """Some experiments as they are kept now."""
    store = Store()
    return [store.read("experiments", identity)[0] for identity in experiments]
