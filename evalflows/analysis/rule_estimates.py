"""Estimates that rules are tested on: differences and means with their intervals, worst cases and cautions."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property

import numpy as np

from evalflows.analysis.figures import allows_for_rare_values
from evalflows.analysis.pairing import EXTREMES, MetricSample, PairedMetric, PairedRows, Scale
from evalflows.analysis.rule_texts import ENOUGH_FOR_TAILS
from evalflows.analysis.rules import Ends, Estimate, Facts, Interval, Rule
from evalflows.specs.experiment import ExperimentSpec
from evalflows.specs.frozen import dataclass
from evalflows.specs.metric_names import sliced_metric
from evalflows.stats.means import MeanEstimate, sample_skewness
from evalflows.stats.paired import PairedDifferences
from evalflows.store.queries.values import MetricValues
from evalflows.store.records import ExperimentRow, Reason
from evalflows.store.store import Store

LONG_TAIL = 1.0
"""Skewness of the values of both sides from which a met non-inferiority rule warns. In simulations (6,000 runs of 30
and 100 pairs), the rule passes log-normal values (log-sd 1, skewness 2) with a loss equal to the margin in 4.1 and 3.4
%, not 2.5 %, and 99 to 100 % of these runs warn; grades from 1 to 5 pass in 2.1 and 2.4 %, and at most 3 % warn."""

AS_0_OR_1 = ", counted as 0 or 1,"
"""What a missing value counts as if all other values are 0 or 1."""

_RUN_LEVEL = """select value, error from staging.scores
             where experiment_id = ? and subject_kind = 'experiment' and metric = ?"""
_FAILED = """select distinct evaluator, error from staging.scores
             where experiment_id = ? and subject_kind = 'experiment' and status = 'failed' order by all"""
_ANSWERED = "select count(*) from source.outputs where experiment_id = ? and status = 'ok'"
_PER_RUN = """select count(distinct evaluator), count(label), count(value) from staging.scores
              where experiment_id = ? and subject_kind = 'run' and turn is null and metric = ?"""


def interval(low: float | None, high: float | None) -> Interval | None:
    """Return both ends; None if one is not known."""
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedDifferences:
    """The differences that a rule tests in each of R replicates of a pair."""

    known: PairedDifferences
    worst_cases: tuple[PairedDifferences, PairedDifferences] | None  # smallest and largest; None if unbounded
    higher_is_better: bool
    of_no_difference: bool = False  # whether the rule tests no difference: then no allowance is needed

    def interval_at(self, confidence_level: float) -> Ends:
        """Return the intervals without missing values; infinite where there is none."""
        return self._interval(self.known, confidence_level)

    def worst_case_interval_at(self, confidence_level: float) -> Ends:
        """Return the ends of each interval with missing values at either extreme."""
        lowest, highest = self.worst_cases or (self.known, self.known)
        if self.worst_cases is None:
            return np.full(len(self.known.error), -np.inf), np.full(len(self.known.error), np.inf)
        if lowest is highest:  # nothing is missing
            return self._interval(lowest, confidence_level)
        low, high = self._interval(lowest, confidence_level)[0], self._interval(highest, confidence_level)[1]
        known = lowest.has_interval & highest.has_interval
        return np.where(known, low, -np.inf), np.where(known, high, np.inf)

    def _interval(self, differences: PairedDifferences, confidence_level: float) -> Ends:
        is_tested = self.of_no_difference
        return (differences.tested_interval_at if is_tested else differences.interval_at)(confidence_level)

    def of_size(self, n: int) -> "ReplicatedDifferences":
        """Return what n pairs or clusters would give, without missing values; see `PairedDifferences.of_size`."""
        return replace(self, known=self.known.of_size(n), worst_cases=None)


def _allowing(method: str, *, of_no_difference: bool = False) -> str:
    """Return what a rule's interval allows for, in words; of a test of no difference, that it does not."""
    if not allows_for_rare_values(method):
        return ""
    return " (of the test of no difference)" if of_no_difference else " (allowing for rare values)"


def replicated_differences(
    paired: PairedMetric, rows: PairedRows, *, of_no_difference: bool = False
) -> ReplicatedDifferences:
    """Return the differences that are tested in replicates of a pair; the pair itself is one."""
    known = paired.differences_of(rows)
    smallest, largest = (paired.worst_cases_of(rows, extreme) if paired.n_missing else known for extreme in EXTREMES)
    worst_cases = None if smallest is None or largest is None else (smallest, largest)
    return ReplicatedDifferences(
        known=known,
        worst_cases=worst_cases,
        higher_is_better=paired.scale.higher_is_better,
        of_no_difference=of_no_difference,
    )


@dataclass(frozen=True)
class DifferenceEstimate(Estimate):
    """How much a metric of the candidate differs from that of the baseline."""

    paired: PairedMetric
    of_no_difference: bool = False  # as in `ReplicatedDifferences`

    @cached_property
    def facts(self) -> Facts:
        paired, estimate = self.paired, self.paired.difference(self.paired.confidence_level)
        worst = paired.worst_case_differences(estimate)
        n, noun = self._tested.known.n, "clusters" if self._tested.known.is_clustered else "pairs"
        sides = paired.candidate, paired.baseline
        return Facts(
            value=estimate.difference,
            worst_case_values=interval(*(None if case is None else case.difference for case in worst)),
            n=n,
            noun=noun,
            n_missing=paired.n_missing,
            n_left_out=paired.n_left_out,
            in_quarantine=sides[0].n_in_quarantine,
            higher_is_better=paired.scale.higher_is_better,
            p_value=estimate.p_value,
            reason=estimate.reason,
            reason_code=estimate.reason_code,
            method=_allowing(estimate.method, of_no_difference=self.of_no_difference),
            caution=None if paired.is_binary else _caution(f"{n} {noun}", n, paired.scale, *sides),
            largest_size=None if paired.is_binary else _largest_size(paired.scale, *sides),
            missing_as=AS_0_OR_1 if paired.scale.is_observed else "",
        )

    @cached_property
    def _tested(self) -> ReplicatedDifferences:
        return replicated_differences(self.paired, self.paired.rows, of_no_difference=self.of_no_difference)

    @cached_property
    def _worst_case_intervals(self) -> Callable[[float], Interval | None]:
        return cache(lambda level: _single(self._tested.worst_case_interval_at(level)))  # asked for at the same levels

    def interval_at(self, confidence_level: float) -> Interval | None:
        return _single(self._tested.interval_at(confidence_level))

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        return self._worst_case_intervals(confidence_level)

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        return _single(self._tested.of_size(n).interval_at(confidence_level))


def _single(ends: Ends) -> Interval | None:
    """Return the interval of a single replicate, if it has one."""
    (low,), (high,) = (end.tolist() for end in ends)
    return None if math.isinf(low) and math.isinf(high) else (low, high)


@dataclass(frozen=True)
class MeanOfSample(Estimate):
    """The candidate's own mean; yes/no metrics get an exact interval, since a threshold decides on one side only."""

    sample: MetricSample
    confidence_level: float

    @cached_property
    def facts(self) -> Facts:
        sample, level = self.sample, self.confidence_level
        estimate, worst = sample.mean(level, exact=True), self._worst_cases(level)
        is_exact = estimate.method != sample.mean(level).method
        n, noun = (estimate.n, "examples") if estimate.n_clusters is None else (estimate.n_clusters, "clusters")
        return Facts(
            value=estimate.mean,
            worst_case_values=worst and interval(worst[0].mean, worst[1].mean),
            n=n,
            noun=noun,
            n_missing=self._n_missing,
            in_quarantine=sample.values.n_in_quarantine,
            higher_is_better=sample.scale.higher_is_better,
            reason=estimate.reason,
            reason_code=estimate.reason_code,
            caution=None if sample.values.is_binary else _caution(f"{n} {noun}", n, sample.scale, sample.values),
            largest_size=None if sample.values.is_binary else _largest_size(sample.scale, sample.values),
            missing_as=AS_0_OR_1 if sample.scale.is_observed else "",
            method=" (exact)" if is_exact else _allowing(estimate.method),
        )

    @property
    def _n_missing(self) -> int:
        return int(self.sample.values.missing.sum())

    def interval_at(self, confidence_level: float) -> Interval | None:
        mean = self.sample.mean(confidence_level, exact=True)
        return interval(mean.low, mean.high)

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        ends = self._worst_cases(confidence_level)
        return ends and interval(ends[0].low, ends[1].high)

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        return self.sample.interval_of_size(n, confidence_level)

    def _worst_cases(self, level: float) -> tuple[MeanEstimate, MeanEstimate] | None:
        """Return the means with all missing values at the lower and the upper bound; None for an unbounded metric."""
        if not self._n_missing:
            return (mean := self.sample.mean(level, exact=True)), mean
        if not self.sample.scale.is_bounded:
            return None
        low, high = self.sample.scale.bounds
        return self.sample.worst_case_mean(low, level, exact=True), self.sample.worst_case_mean(high, level, exact=True)


def _caution(what: str, n: int, scale: Scale, *sides: MetricValues) -> str | None:
    """Warn if so few of the values can miss a tail that would be a loss, unless the interval allows for it."""
    if n >= ENOUGH_FOR_TAILS or (np.isfinite(scale.support).all() and scale.declared.rare_losses):
        return None
    values = np.concatenate([side.values for side in sides])
    skewness = sample_skewness(values[~np.isnan(values)])
    if abs(skewness) >= LONG_TAIL:
        return f"the values have a long tail (skewness {skewness:.1f}), and {what} may miss values that would be a loss"
    return None


def _largest_size(scale: Scale, *sides: MetricValues) -> float | None:
    """Return the largest size of a value, by which one could fall; None if a range says what is possible."""
    if np.isfinite(scale.support).all():
        return None
    return float(np.nanmax(np.abs(np.concatenate([side.values for side in sides])), initial=0.0))


@dataclass(frozen=True, slots=True)
class RunLevelValue:
    """A metric that is one number for a whole run, without an interval."""

    facts: Facts

    def interval_at(self, confidence_level: float) -> Interval | None:
        return None

    def worst_case_interval_at(self, confidence_level: float) -> Interval | None:
        return None

    def interval_of_size(self, n: int, confidence_level: float) -> Interval | None:
        return None


def run_level_estimate(store: Store, spec: ExperimentSpec, row: ExperimentRow, rule: Rule) -> Estimate | Reason:
    """Return the estimate of a run-level metric, or why the rule cannot be evaluated."""
    sliced = sliced_metric(rule.metric)
    scores = store.query(_RUN_LEVEL, [row.experiment_id, sliced.metric])
    if scores and sliced.path is not None:
        return Reason("run_level_metric", "a run-level metric is one number for all examples: it has no slices")
    if len(scores) != 1:
        several = Reason("ambiguous_metric", "several run-level evaluators give it")
        return several if scores else _why_no_values(store, row, sliced.metric)
    ((value, error),) = scores
    answered, planned = store.query(_ANSWERED, [row.experiment_id])[0][0], row.n_examples * row.repetitions
    if value is None:
        return Reason("not_numeric", f"it is not a number: {error or 'a label'}")
    if rule.kind != "threshold":
        text = "a run-level metric is one number without an interval: wanted under thresholds"
        return Reason("run_level_metric", text)
    if answered < planned:
        return Reason("incomplete", f"computed from {answered} of {planned} answers: the missing ones could change it")
    higher = bool(spec.direction(rule.metric).higher_is_better)
    return RunLevelValue(
        Facts(
            value=value,
            worst_case_values=(value, value),
            n=answered,
            noun="answers",
            n_missing=0,
            higher_is_better=higher,
        )
    )


def _why_no_values(store: Store, row: ExperimentRow, metric: str) -> Reason:
    ((evaluators, labels, numbers),) = store.query(_PER_RUN, [row.experiment_id, metric])
    if labels:
        besides = " besides numbers" if numbers else ""
        return Reason("not_numeric", f"it has labels{besides}, which are not averaged")
    if evaluators > 1:
        return Reason("ambiguous_metric", f"{evaluators} evaluators give it, so it is ambiguous")
    if not evaluators and (failed := store.query(_FAILED, [row.experiment_id])):
        return Reason("no_data", "; ".join(f"{name} failed: {error}" for name, error in failed))
    if not evaluators:
        return Reason("no_such_metric", "no evaluator gives it")
    return Reason("no_data", "it has no scored values")
