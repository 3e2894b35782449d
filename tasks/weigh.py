"""Significance: each metric's mean with its interval, and each candidate's difference from the baseline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prefect import task
from prefect.cache_policies import NO_CACHE

from specs.experiment import ExperimentSpec
from specs.metric import MEASURES
from store.parquet import Store
from store.records import EstimateRow, ExperimentRow, VerdictRow, derived_id
from store.values import MetricValues, clusters_of, metric_values
from tasks.conclude import Concluded, Evidence, conclude
from tasks.controls import unfit_judges
from tasks.power import seeable
from tasks.sides import Clusters, Side, Sides, counts_of, numbers_of, scale_of, told_apart
from tasks.trials import trial_values


@task(cache_policy=NO_CACHE, persist_result=False)
def weigh_differences(rows: list[ExperimentRow]) -> str:
    """Keep the estimates of every experiment of a run group, and the verdict on every candidate. Returns the group.

    The experiments share their examples; they are weighed anew each time, from the rows that are there.
    """
    store, group = Store(), rows[0].run_group
    spec = ExperimentSpec.model_validate_json(rows[0].spec)
    clusters = clusters_in(store, rows[0])
    found = {row.target: list(values_of(store, row, spec)) for row in rows}
    for row in rows:
        store.publish(
            "estimates", row.experiment_id, [_estimate(row, one, clusters, spec) for one in found[row.target]]
        )
    values = {target: told_apart(every) for target, every in found.items()}
    base = next(row for row in rows if row.target == (spec.baseline or rows[0].target))
    unfit = resting_on(unfit_judges(store, group), spec)
    compared = [
        _Compared(
            row,
            base,
            Sides(candidate=one, baseline=other, clusters=clusters, scale=scale_of(one, spec), level=spec.level),
        )
        for row in rows
        if row is not base
        for metric, one in values[row.target].items()
        if (other := values[base.target].get(metric))
    ]
    store.publish("verdicts", group, list(_verdicts(compared, unfit, spec)))
    return group


def values_of(store: Store, row: ExperimentRow, spec: ExperimentSpec) -> Iterator[MetricValues]:
    """The metrics of an experiment, and what is made of their repetitions."""
    for one in metric_values(store, row):
        yield one
        yield from trial_values(store, row, one, spec.direction(one.metric))


def clusters_in(store: Store, row: ExperimentRow) -> Clusters:
    """The cluster of each example, in the snapshot's order; None where there is none at all."""
    clusters = clusters_of(store, row.snapshot_id)
    return clusters if any(cluster is not None for cluster in clusters) else None


def resting_on(unfit: Mapping[str, str], spec: ExperimentSpec) -> dict[str, str]:
    """Unfit judges, and the composites that weigh their metrics, each with the reason."""
    composites = {
        composite.name: f"it weighs {judge}: {why}"
        for composite in spec.composites
        for judge, why in unfit.items()
        if judge in composite.metrics
    }
    return {**unfit, **composites}


def _estimate(row: ExperimentRow, one: MetricValues, clusters: Clusters, spec: ExperimentSpec) -> EstimateRow:
    found = Side(values=one, clusters=clusters, scale=scale_of(one, spec)).mean(spec.level)
    return EstimateRow(
        estimate_id=derived_id(row.experiment_id, one.metric, one.evaluator_version, None),
        experiment_id=row.experiment_id,
        metric=one.metric,
        evaluator_version=one.evaluator_version,
        mean=found.mean,
        ci_low=found.low,
        ci_high=found.high,
        level=found.level,
        method=found.method,
        n_examples=found.n,
        n_clusters=found.n_clusters,
        reason=found.reason,
    )


@dataclass(frozen=True, slots=True)
class _Compared:
    """One metric of one candidate against the baseline."""

    candidate: ExperimentRow
    baseline: ExperimentRow
    sides: Sides


def _verdicts(compared: Sequence[_Compared], unfit: Mapping[str, str], spec: ExperimentSpec) -> Iterator[VerdictRow]:
    """Adjusted for how many are asked: what evaluators gave is one family, what is measured of every run another, since
    nobody asked for it."""
    for measured in (False, True):
        family = [one for one in compared if (one.sides.candidate.metric in MEASURES) == measured]
        evidence = [one.sides.evidence(unfit.get(one.sides.candidate.evaluator)) for one in family]
        for one, rests_on, said in zip(family, evidence, conclude(evidence, spec.adjustment), strict=True):
            yield _verdict(one, rests_on, said)


def _verdict(one: _Compared, evidence: Evidence, said: Concluded) -> VerdictRow:
    metric, candidate, baseline = one.sides.candidate.metric, one.candidate, one.baseline
    return VerdictRow(
        verdict_id=derived_id(candidate.experiment_id, baseline.experiment_id, metric, None),
        run_group=candidate.run_group,
        metric=metric,
        candidate_experiment_id=candidate.experiment_id,
        baseline_experiment_id=baseline.experiment_id,
        conclusion=said.conclusion,
        reason=said.reason,
        p_adjusted=said.p_adjusted,
        adjustment=said.adjustment,
        **numbers_of(evidence),
        **seeable(evidence.found),
        **counts_of(one.sides.candidate, one.sides.baseline),
    )
