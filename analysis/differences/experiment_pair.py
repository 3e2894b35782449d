"""Two experiments, metric by metric: their paired data, the test of each difference, and the verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from evalflows.analysis.differences.comparability import Difference, differences, refused
from evalflows.analysis.differences.detectable_effect import detectable_effect_columns
from evalflows.analysis.differences.judge_fitness import resting_on
from evalflows.analysis.differences.matching import Matched
from evalflows.analysis.differences.metric_pairs import (
    Clusters,
    MetricSample,
    PairedMetric,
    counts_of,
    difference_columns,
    paired_metric,
    scale_of,
)
from evalflows.analysis.differences.metric_reader import MetricReader
from evalflows.analysis.differences.verdicts import DifferenceTest, Verdict, classify
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.gate import Adjustment
from evalflows.store.queries.metric_values import MetricValues
from evalflows.store.reasons import Reason
from evalflows.store.records import ExperimentRow, VerdictRow, derived_id


@dataclass(frozen=True, kw_only=True)
class ExperimentPair:
    """A candidate and its baseline, or None without one.

    The table of results, gates and backtests all compare experiments through this class.
    """

    reader: MetricReader
    spec: ExperimentSpec
    candidate: ExperimentRow
    baseline: ExperimentRow | None

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
    def matched(self) -> Matched | None:
        """The shared examples; None without a baseline."""
        return self.reader.matched(self.candidate, self.baseline) if self.baseline else None

    @cached_property
    def differences(self) -> Sequence[Difference]:
        """Unintended differences between the two."""
        if self.baseline is None or self.matched is None:
            return []
        judges = self.reader.judge_models(self.candidate), self.reader.judge_models(self.baseline)
        return differences(self.candidate, self.baseline, self.matched, self.spec, judges)

    @property
    def clusters(self) -> Clusters:
        """The clusters of the candidate's examples."""
        return self.reader.clusters(self.candidate)

    def sample(self, metric: str) -> MetricSample | None:
        """A metric of the candidate; None if it does not have it."""
        one = self.values.get(metric)
        if one is None:
            return None
        return MetricSample(values=one, clusters=self.clusters, scale=scale_of(one, self.spec))

    def paired(self, metric: str) -> PairedMetric | None:
        """A metric on the shared examples; None if one of the two does not have it."""
        one, other = self.values.get(metric), self.baseline_values.get(metric)
        if one is None or other is None or self.matched is None:
            return None
        ours, theirs = self.matched.of_candidate(one), self.matched.of_baseline(other)
        return paired_metric(ours, theirs, self.matched.of_clusters(self.clusters), self.spec)

    def why_judge_failed(self, metric: str) -> Reason | None:
        """Why a metric is excluded for its judge; None if it is not."""
        one = self.values.get(metric)
        return self._failed_judges.get(one.evaluator) if one else None

    def why_refused(self, metric: str) -> Reason | None:
        """Why a metric is not comparable; metrics derived from refused ones (pass@k) are refused with them."""
        one = self.values.get(metric)
        return self._refused.get(metric) or (self._refused.get(one.evaluator) if one else None)

    def evidence(self, paired: PairedMetric, margin: float | None = None) -> DifferenceTest:
        """Test a metric's difference, by default with the declared margin."""
        metric = paired.candidate.metric
        return paired.evidence(self.why_refused(metric) or self.why_judge_failed(metric), margin)

    @cached_property
    def _failed_judges(self) -> Mapping[str, Reason]:
        rows = {row.run_group: row for row in (self.baseline, self.candidate) if row is not None}
        exclusion = {
            judge: why for group in sorted(rows) for judge, why in self.reader.failed_judges(rows[group]).items()
        }
        return resting_on(exclusion, self.spec)

    @cached_property
    def _refused(self) -> Mapping[str, Reason]:
        return refused(self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One metric of a pair, and the test of its difference."""

    pair: ExperimentPair
    paired: PairedMetric
    evidence: DifferenceTest


def verdicts(tested: Sequence[Tested], adjustment: Adjustment, decision_id: str | None = None) -> Iterator[VerdictRow]:
    """The verdict on each metric, adjusted together; `decision_id` is the decision that they belong to, if any."""
    for one, verdict in zip(tested, classify([one.evidence for one in tested], adjustment), strict=True):
        yield _verdict_row(one, verdict, decision_id)


def _verdict_row(one: Tested, verdict: Verdict, decision_id: str | None) -> VerdictRow:
    candidate, baseline, metric = one.pair.candidate, one.pair.baseline, one.paired.candidate.metric
    assert baseline is not None  # else nothing would be paired
    of_group = derived_id(candidate.experiment_id, baseline.experiment_id, metric, None)
    return VerdictRow(
        verdict_id=derived_id(decision_id, metric) if decision_id else of_group,
        decision_id=decision_id,
        run_group=decision_id or candidate.run_group,
        metric=metric,
        candidate_experiment_id=candidate.experiment_id,
        baseline_experiment_id=baseline.experiment_id,
        conclusion=verdict.conclusion,
        reason=verdict.reason,
        reason_code=verdict.reason_code,
        p_adjusted=verdict.p_adjusted,
        adjustment=verdict.adjustment,
        **difference_columns(one.evidence),
        **detectable_effect_columns(one.evidence.found),
        **counts_of(one.paired.candidate, one.paired.baseline),
    )
