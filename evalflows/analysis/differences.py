"""Two experiments, metric by metric: their paired data, the test of each difference, and the verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from evalflows.analysis.differences.comparability import Difference, differences, incomparable_metrics
from evalflows.analysis.differences.detectable_effect import detectable_effect_columns
from evalflows.analysis.differences.judge_validation import with_dependent_composites
from evalflows.analysis.differences.matching import MatchedExamples, Places, sample_at
from evalflows.analysis.differences.metric_pairs import (
    Clusters,
    MetricSample,
    PairedMetric,
    counts_of,
    difference_columns,
    paired_metric,
)
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.differences.scales import scale_of
from evalflows.analysis.differences.verdicts import DifferenceTest, Verdict, classify
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import Adjustment
from evalflows.specs.metric_names import LATENCY, MEASURES
from evalflows.specs.metric_slices import metric_of, sliced_metric
from evalflows.store.queries.example_slices import places_of
from evalflows.store.queries.metric_values import MetricValues
from evalflows.store.queries.rounds import SharedRounds
from evalflows.store.reasons import Reason
from evalflows.store.records import ExperimentRow, VerdictRow, derived_id

NOT_SIDE_BY_SIDE = Reason(
    "not_side_by_side",
    "not measured side by side: the answers were made in separate runs, recorded, or taken from the ledger",
)


def timed_metrics(spec: ExperimentSpec) -> dict[str, Reason]:
    """The metrics that can be compared only side by side, latency and composites of it, with the reason if not."""
    return with_dependent_composites({LATENCY: NOT_SIDE_BY_SIDE}, spec)


@dataclass(frozen=True, kw_only=True)
class ExperimentPair:
    """A candidate and its baseline, if there is one.

    The table of results, gates and backtests all compare experiments through this class.
    """

    reader: MetricReader
    spec: ExperimentSpec
    candidate: ExperimentRow
    baseline: ExperimentRow | None
    where: str | None = None  # a SQL condition on the candidate's examples: only these count

    has_run_level_metrics: ClassVar[bool] = True

    @property
    def is_against_itself(self) -> bool:
        return self.baseline is not None and self.baseline.experiment_id == self.candidate.experiment_id

    @cached_property
    def values(self) -> Mapping[str, MetricValues]:
        """The candidate's metrics."""
        return self.reader.values(self.candidate, self.spec)

    @cached_property
    def baseline_values(self) -> Mapping[str, MetricValues]:
        return self.reader.values(self.baseline, self.spec) if self.baseline else {}

    @cached_property
    def matched(self) -> MatchedExamples | None:
        """The shared examples; None without a baseline."""
        return self.reader.matched(self.candidate, self.baseline) if self.baseline else None

    @cached_property
    def differences(self) -> Sequence[Difference]:
        """The unintended differences between the two experiments."""
        if self.baseline is None or self.matched is None:
            return []
        judges = self.reader.judge_models(self.candidate), self.reader.judge_models(self.baseline)
        return differences(self.candidate, self.baseline, self.matched, self.spec, judges)

    @property
    def clusters(self) -> Clusters:
        """The clusters of the candidate's examples."""
        return self.reader.clusters(self.candidate)

    def sample(self, name: str) -> MetricSample | None:
        """A metric of the candidate, or a slice of it; None if the candidate does not have it."""
        values = self.values.get(metric_of(name))
        if values is None:
            return None
        sample = MetricSample(values=values, clusters=self.clusters, scale=scale_of(values, self.spec))
        return sample_at(sample, self.sample_places(name)) if self._is_part(name) else sample

    def sample_places(self, name: str) -> Places:
        """The positions of a metric's examples in the candidate's snapshot: all, or those of its slice."""
        sliced, snapshot_id = sliced_metric(name), self.candidate.snapshot_id
        places = np.arange(self.candidate.n_examples, dtype=np.intp)
        if self.where is not None:
            places = self.reader.places_where(snapshot_id, self.where)
        if sliced.path is not None:
            places = np.intersect1d(places, places_of(self.reader.slice_values(snapshot_id, sliced.path), sliced))
        return places

    def _is_part(self, name: str) -> bool:
        """Whether a metric's examples are only some of the snapshot's."""
        return self.where is not None or sliced_metric(name).path is not None

    def paired(self, name: str) -> PairedMetric | None:
        """A metric, or a slice of it, on the shared examples; None if either experiment does not have it."""
        metric, matched = metric_of(name), self.matched_in(name)
        ours, theirs = self.values.get(metric), self.baseline_values.get(metric)
        if ours is None or theirs is None or matched is None:
            return None
        ours, theirs = matched.of_candidate(ours), matched.of_baseline(theirs)
        paired = paired_metric(ours, theirs, matched.of_clusters(self.clusters), self.spec)
        paired = replace(paired, slice=sliced_metric(name).slice)
        rounds = self._rounds if metric == LATENCY else None
        if rounds is None or not rounds.together.any():
            return paired
        return paired.side_by_side(rounds.at(self.shared_places(name)))

    def matched_in(self, name: str) -> MatchedExamples | None:
        """The shared examples of a metric: all, or those of its slice; None without a baseline."""
        if self.matched is None or not self._is_part(name):
            return self.matched
        return self.matched.at(self.shared_places(name))

    def shared_places(self, name: str) -> Places:
        """The positions of a metric's examples among the shared ones. The slice is by the candidate's examples."""
        shared = np.array([] if self.matched is None else self.matched.candidate, dtype=np.intp)
        return np.flatnonzero(np.isin(shared, self.sample_places(name))).astype(np.intp)

    def why_judge_failed(self, name: str) -> Reason | None:
        """Why a metric is excluded because of its judge; None if it is not."""
        values = self.values.get(metric_of(name))
        return self._failed_judges.get(values.evaluator) if values else None

    def why_refused(self, name: str) -> Reason | None:
        """Why a metric is not comparable; metrics derived from refused ones (pass@k) are refused with them."""
        metric = metric_of(name)
        values = self.values.get(metric)
        return self._refused.get(metric) or (self._refused.get(values.evaluator) if values else None)

    def difference_test(self, paired: PairedMetric, margin: float | None = None) -> DifferenceTest:
        """Test a metric's difference, by default with the declared margin."""
        metric = paired.candidate.metric
        return paired.difference_test(self.why_refused(metric) or self.why_judge_failed(metric), margin)

    @cached_property
    def _failed_judges(self) -> Mapping[str, Reason]:
        rows = {row.run_group: row for row in (self.baseline, self.candidate) if row is not None}
        exclusion = {
            judge: why for group in sorted(rows) for judge, why in self.reader.failed_judges(rows[group]).items()
        }
        return with_dependent_composites(exclusion, self.spec)

    @cached_property
    def _refused(self) -> Mapping[str, Reason]:
        refused = incomparable_metrics(self.differences)
        if self._rounds is not None and not self._rounds.together.any():
            refused |= timed_metrics(self.spec)
        return refused

    @cached_property
    def _rounds(self) -> SharedRounds | None:
        """The rounds in which both sides answered; None without a baseline, or if both are of one experiment."""
        if self.baseline is None or self.baseline.experiment_id == self.candidate.experiment_id:
            return None
        return self.reader.shared_rounds(self.candidate, self.baseline)


def verdicts_of(pairs: Sequence[ExperimentPair], adjustment: Adjustment) -> Iterator[VerdictRow]:
    """Yield the verdict on each metric of each pair.

    Metrics of evaluators and built-in measures (latency, cost, …) are two families, adjusted separately.
    """
    tested = [
        TestedMetric(pair=pair, paired=paired, test=pair.difference_test(paired))
        for pair in pairs
        for metric in pair.values
        if (paired := pair.paired(metric))
    ]
    for is_measure in (False, True):
        family = [each for each in tested if (each.paired.candidate.metric in MEASURES) == is_measure]
        yield from verdicts(family, adjustment)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedMetric:
    """One metric of a pair, and the test of its difference."""

    pair: ExperimentPair
    paired: PairedMetric
    test: DifferenceTest


def verdicts(
    tested: Sequence[TestedMetric], adjustment: Adjustment, decision_id: str | None = None
) -> Iterator[VerdictRow]:
    """Yield the verdict on each metric, adjusted together; `decision_id` is their gate decision, if any."""
    classified = classify([metric.test for metric in tested], adjustment)
    for metric, verdict in zip(tested, classified, strict=True):
        yield _verdict_row(metric, verdict, decision_id)


def _verdict_row(tested: TestedMetric, verdict: Verdict, decision_id: str | None) -> VerdictRow:
    candidate, baseline, metric = tested.pair.candidate, tested.pair.baseline, tested.paired.candidate.metric
    assert baseline is not None  # a paired metric has a baseline
    of_slice = tested.paired.slice
    of_group = derived_id(candidate.experiment_id, baseline.experiment_id, metric, of_slice)
    of_decision = [decision_id, metric] if of_slice is None else [decision_id, metric, of_slice]
    return VerdictRow(
        verdict_id=derived_id(*of_decision) if decision_id else of_group,
        decision_id=decision_id,
        run_group=decision_id or candidate.run_group,
        metric=metric,
        slice=of_slice,
        candidate_experiment_id=candidate.experiment_id,
        baseline_experiment_id=baseline.experiment_id,
        conclusion=verdict.conclusion,
        reason=verdict.reason,
        reason_code=verdict.reason_code,
        p_adjusted=verdict.p_adjusted,
        adjustment=verdict.adjustment,
        **difference_columns(tested.test),
        **detectable_effect_columns(tested.test.estimate),
        **counts_of(tested.paired.candidate, tested.paired.baseline),
    )
