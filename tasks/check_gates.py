"""Gate preflight: check that each gate can decide before anything is paid."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from evalflows.analysis.differences.experiment_pair import timed_metrics
from evalflows.analysis.gates.baselines import baseline_row, no_baseline
from evalflows.analysis.gates.judge_recalibration import metrics_to_recalibrate, recalibrations_of
from evalflows.analysis.gates.production import check_production
from evalflows.specs.errors import InputError
from evalflows.specs.experiment import TRIAL, ExperimentSpec
from evalflows.specs.gate import GateSpec
from evalflows.specs.metric_slices import metric_of
from evalflows.store.parquet import Store
from evalflows.store.records import ExperimentRow
from evalflows.tasks.snapshot import freeze_dataset


@task(cache_policy=NO_CACHE, persist_result=False)
def check_gates(spec: ExperimentSpec) -> ExperimentSpec:
    """Check the spec and its gates, freeze its dataset, and return the frozen spec.

    Raise InputError, before anything is paid, for a spec without gates, a baseline that is not approved, a rule that
    compares latency with an approved baseline, or a baseline judged by other evaluators than the candidate will be if
    the gate has no `recalibrate`; and for a window of production without enough scores by the same evaluators.
    """
    if not spec.gates:
        raise InputError(
            f"spec {spec.name!r}: got no gates, wanted at least one: {{name: release, non_inferiority: …}}"
        )
    if spec.is_trial:
        raise InputError(f"spec {spec.name!r}: got the tag {TRIAL!r}, wanted a run that a gate may decide on")
    spec, store = freeze_dataset.fn(spec), Store()
    for gate in spec.gates:
        if gate.compares and gate.production is not None:
            check_production(store, spec, gate, gate.production)
        elif gate.compares and spec.baseline_target(gate) is None:
            _check_baseline(spec, gate, baseline_row(store, spec, gate, []))
    return spec


def _check_baseline(spec: ExperimentSpec, gate: GateSpec, baseline: ExperimentRow | None) -> None:
    if baseline is None:
        raise InputError(f"gate {gate.name!r}: {no_baseline(spec, gate)}")
    compared = {metric_of(name) for name in (*gate.non_inferiority, *gate.superiority)}
    if timed := sorted(timed_metrics(spec).keys() & compared):
        raise InputError(
            f"gate {gate.name!r}: {timed[0]} cannot be compared with an approved baseline, which answered at another "
            "time; wanted the baseline as a target of this spec too, so that both answer side by side"
        )
    if gate.recalibrate is None:
        for reason in metrics_to_recalibrate(spec, gate, baseline).values():
            raise InputError(
                f"gate {gate.name!r}: {reason}; wanted the same evaluator, or `recalibrate: {{sample: 100}}`, "
                f"so that the new judge also scores some of the baseline's answers"
            )


@task(cache_policy=NO_CACHE, persist_result=False)
def recalibrations(spec: ExperimentSpec) -> list[ExperimentSpec]:
    """Return the specs to run first, so that gates can compare with baselines scored by other judges."""
    return recalibrations_of(Store(), spec)
