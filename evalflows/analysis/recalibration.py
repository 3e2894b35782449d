"""Recalibration: both sides of a gate judged by the newer of two versions of a judge.

A difference between scores of two judges would mix in the difference between the judges. On the sampled examples the
newer judge has scored both sides, so the difference is known; on all examples, the candidate's score by the newer judge
minus the baseline's by the older one predicts it. Prediction-powered inference combines both into one estimate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from evalflows.analysis.baselines import baseline_row
from evalflows.analysis.comparability import JUDGE_DRIFT, evaluators_of, incomparable_metrics, version_differences
from evalflows.analysis.differences import ExperimentPair
from evalflows.analysis.pairing import Clusters, PairedMetric, filled
from evalflows.analysis.rule_estimates import interval
from evalflows.analysis.rules import Estimate, Facts, Interval
from evalflows.specs.dataset import DatasetSpec
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.gate import GateSpec, RecalibrationSpec
from evalflows.specs.metric_names import metric_of
from evalflows.stats.judge_error import PredictionPowered, prediction_powered_mean
from evalflows.stats.paired import PairedDifference
from evalflows.store.described import DescribedEvaluator
from evalflows.store.queries.values import Mask, MetricValues, Values
from evalflows.store.records import ExperimentRow, Reason, derived_id
from evalflows.store.snapshots import load_snapshot
from evalflows.store.store import Store

if TYPE_CHECKING:  # what decides evaluates nothing, unless a gate recalibrates or judges again
    from evalflows.engine.prepare import PreparedExperiment

RECALIBRATION = "recalibrate"
"""Name of the target that replays the baseline's answers."""

REJUDGEMENT = "rejudge"


def recalibrations_of(store: Store, prepared: "PreparedExperiment") -> list[ExperimentSpec]:
    """Specs to run so that gates with `recalibrate` can compare with baselines scored by other evaluator versions."""
    spec, specs = prepared.spec, {}
    for gate in spec.gates:
        baseline = baseline_row(store, spec, gate, []) if spec.baseline_target(gate) is None else None
        if gate.recalibrate is not None and baseline is not None and metrics_to_recalibrate(prepared, gate, baseline):
            recalibration = recalibration_spec(spec, prepared.by_name, gate.recalibrate, baseline)
            specs[recalibration.run_key] = recalibration
    return list(specs.values())


def metrics_to_recalibrate(
    prepared: "PreparedExperiment", gate: GateSpec, baseline: ExperimentRow
) -> Mapping[str, Reason]:
    """Return the metrics that a gate compares across two versions of an evaluator, each with the reason."""
    changed = incomparable_metrics(
        version_differences(prepared.by_name, evaluators_of(baseline), prepared.spec.composites)
    )
    compared = {metric_of(name) for name in (*gate.non_inferiority, *gate.superiority)}
    return {metric: why for metric, why in changed.items() if metric in compared}


def recalibration_spec(
    spec: ExperimentSpec,
    evaluators: Mapping[str, DescribedEvaluator],
    recalibrate: RecalibrationSpec,
    baseline: ExperimentRow,
) -> ExperimentSpec:
    """Return the spec that replays the baseline's answers to a sample of its examples, for the newer evaluators to
    score."""
    from evalflows.engine.judging_again import replaying  # late: it loads what evaluates

    versions = sorted(evaluator.version for evaluator in evaluators.values())
    key = derived_id(RECALIBRATION, baseline.experiment_id, recalibrate.sample, recalibrate.seed, *versions)
    size = min(recalibrate.sample, baseline.n_examples)
    return replaying(
        spec,
        {RECALIBRATION: baseline.experiment_id},
        name=f"{spec.name}-{RECALIBRATION}",
        description=f"Answers of {baseline.name}, scored again for comparison",
        dataset=DatasetSpec(snapshot=baseline.snapshot_id, sample=size, seed=recalibrate.seed),
        repetitions=1,
        summary_evaluators=[],
        run_key=f"{RECALIBRATION}-{key}",
    )


def rejudgements_of(store: Store, pairs: Iterable[tuple[GateSpec, ExperimentPair]]) -> list[ExperimentSpec]:
    """Return the specs to run so that gates with `judge_drift: rejudge` can compare answers by today's judge alone."""
    specs = {}
    for gate, pair in pairs:
        drifted = {difference.metric for difference in pair.differences if difference.what == JUDGE_DRIFT}
        compared = {metric_of(name) for name in gate.compared}
        if gate.judge_drift == "rejudge" and pair.baseline is not None and drifted & compared:
            again = rejudgement_spec(pair.spec, pair.candidate, pair.baseline)
            if not any(composite.name in drifted for composite in pair.spec.composites):
                judges = [judge for judge in again.evaluators if judge.metric in drifted]
                again = again.model_copy(update={"evaluators": judges, "composites": []})
            specs[again.run_key] = again
    return [*specs.values()]


def rejudgement_spec(spec: ExperimentSpec, candidate: ExperimentRow, baseline: ExperimentRow) -> ExperimentSpec:
    """Return the spec that replays all of the baseline's answers, for today's judges to score.

    So it does with the candidate's, if some of their scores came from the ledger: these may be of the judge before.
    """
    from evalflows.engine.judging_again import replaying  # late: it loads what evaluates

    replayed = {"baseline": baseline, **({"candidate": candidate} if candidate.calls_cached else {})}
    return replaying(
        spec,
        {name: row.experiment_id for name, row in replayed.items()},
        name=f"{spec.name}-{REJUDGEMENT}",
        description=f"Answers of {baseline.name}, judged again for comparison",
        dataset=DatasetSpec(snapshot=baseline.snapshot_id),
        repetitions=baseline.repetitions,
        summary_evaluators=[],
        use_cache=False,
        run_key=f"{REJUDGEMENT}-{derived_id(baseline.experiment_id, candidate.experiment_id)}",
    )


def rejudged_pair(pair: ExperimentPair) -> ExperimentPair | None:
    """Return a candidate and its baseline as today's judges judged them after a drift; None if they did not."""
    if pair.baseline is None:
        return None
    from evalflows.engine.prepare import experiment_id, id_of_run_key  # late: it loads what evaluates

    again, store = rejudgement_spec(pair.spec, pair.candidate, pair.baseline), pair.reader.store
    group = id_of_run_key("group", again.run_key or "")
    rows = {target.name: store.read("experiments", experiment_id(group, target.name)) for target in again.targets}
    if not all(rows.values()):
        return None
    candidate = rows["candidate"][0] if "candidate" in rows else pair.candidate
    return replace(pair, candidate=candidate, baseline=rows["baseline"][0])


def recalibration_row(
    store: Store, spec: ExperimentSpec, gate: GateSpec, candidate: ExperimentRow, baseline: ExperimentRow
) -> ExperimentRow | None:
    """Return the experiment in which a baseline's answers were scored again, by the candidate's evaluators; None if
    there is none."""
    if gate.recalibrate is None:
        return None
    from evalflows.engine.prepare import experiment_id, id_of_run_key  # late: it loads what evaluates

    run_key = recalibration_spec(spec, evaluators_of(candidate), gate.recalibrate, baseline).run_key or ""
    rows = store.read("experiments", experiment_id(id_of_run_key("group", run_key), RECALIBRATION))
    return rows[0] if rows else None


@dataclass(frozen=True, kw_only=True)
class Recalibrated(Estimate):
    """A paired metric by the newer judge, who has scored some of the baseline's answers."""

    paired: PairedMetric  # the baseline scored by the older judge
    rejudged: Values  # the baseline scored by the newer judge, by position; NaN if not sampled or missing
    rejudged_missing: Values  # the share of each that is missing
    sampled: Mask

    @cached_property
    def facts(self) -> Facts:
        level = self.paired.confidence_level
        estimate, is_clustered = self._estimate(level, None), self.paired.clusters is not None
        return Facts(
            value=estimate.mean,
            worst_case_values=self.worst_case_interval_at(level),
            n=self._sampled_clusters() if is_clustered else estimate.n_labels,
            noun=f"{'clusters' if is_clustered else 'pairs'} scored by the newer judge",
            n_missing=self._n_missing,
            higher_is_better=self.paired.scale.higher_is_better,
            reason=estimate.reason,
        )

    def difference(self) -> PairedDifference:
        """Return the difference for a verdict; the method gives an interval but no p-value."""
        estimate = self._estimate(self.paired.confidence_level, None)
        return PairedDifference(
            candidate_mean=None,
            baseline_mean=None,
            difference=estimate.mean,
            low=estimate.low,
            high=estimate.high,
            p_value=None,
            confidence_level=estimate.confidence_level,
            method=f"recalibrated: {estimate.method}",
            n_pairs=estimate.n_labels,
            n_clusters=estimate.n_clusters,
            reason=estimate.reason or "recalibrated from another judge: an interval, but no test",
        )

    def interval_at(self, confidence_level: float) -> Interval | None:
        estimate = self._estimate(confidence_level, None)
        return interval(estimate.low, estimate.high)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        if not self._n_missing:
            return self.interval_at(confidence_level)
        if not self.paired.scale.is_bounded:
            return None
        smallest, largest = (self._estimate(confidence_level, extreme) for extreme in ("smallest", "largest"))
        return interval(smallest.low, largest.high)

    def _sampled_clusters(self) -> int:
        clusters = self.paired.clusters or []
        return len({clusters[index] or f"alone {index}" for index in np.flatnonzero(self.sampled).tolist()})

    @property
    def _n_missing(self) -> int:
        """Examples with a missing value: of the candidate, or of the newer judge's scores of the baseline."""
        return int((self.paired.candidate.missing | (self.rejudged_missing > 0)).sum())

    def _estimate(self, confidence_level: float, extreme: str | None) -> PredictionPowered:
        """Return the mean difference, without missing values, or with them making it the "smallest" or "largest"
        possible."""
        low, high = self.paired.scale.bounds
        candidate, rejudged = self.paired.candidate.values, self.rejudged
        if extreme is not None:
            of_candidate, of_baseline = (low, high) if extreme == "smallest" else (high, low)
            candidate = filled(candidate, self.paired.candidate.missing_part, of_candidate)
            rejudged = filled(rejudged, self.rejudged_missing, of_baseline)
        is_scored = ~np.isnan(candidate)
        known = is_scored & self.sampled & ~np.isnan(rejudged)
        older = self.paired.baseline.values
        predicted = candidate - np.where(np.isnan(older), np.nanmean(older) if (~np.isnan(older)).any() else 0.0, older)
        rest = is_scored & ~known
        return prediction_powered_mean(
            (candidate - rejudged)[known],
            predicted[known],
            predicted[rest],
            _in_order(self.paired.clusters, known, rest),
            bounds=(low - high, high - low) if self.paired.scale.is_bounded else None,
            confidence_level=confidence_level,
        )


def recalibrated(
    store: Store, paired: PairedMetric, example_ids: Sequence[str], rejudged: MetricValues, row: ExperimentRow
) -> Recalibrated:
    """Align the newer judge's scores of the baseline, `rejudged` of experiment `row`, with the paired examples."""
    places = {example_id: index for index, example_id in enumerate(load_snapshot(store, row.snapshot_id).ids)}
    at = [places.get(example_id) for example_id in example_ids]
    values = np.array([np.nan if index is None else rejudged.values[index] for index in at], dtype=np.float64)
    missing = np.array([0.0 if index is None else rejudged.missing_part[index] for index in at], dtype=np.float64)
    sampled = (missing > 0) | ~np.isnan(values)  # examples to which the judge does not apply were not sampled
    return Recalibrated(paired=paired, rejudged=values, rejudged_missing=missing, sampled=sampled)


def _in_order(clusters: Clusters, known: Mask, rest: Mask) -> list[str | None] | None:
    if clusters is None:
        return None
    return [clusters[index] for index in (*np.flatnonzero(known), *np.flatnonzero(rest))]
