"""The differences and means that gate rules test, with their intervals, negated if less is better."""

from dataclasses import dataclass

import numpy as np

from evalflows.analysis.differences.metric_pairs import MetricSample, PairedMetric
from evalflows.analysis.gates.rules import BoundedEstimate, Interval, oriented
from evalflows.stats import MeanEstimate, PairedDifference
from evalflows.stats.skewness import sample_skewness

LONG_TAIL = 1.0
"""Skewness of the values of both sides from which a met non-inferiority rule warns. In simulations (6,000 runs of 30
and 100 pairs), the rule passes log-normal values (log-sd 1, skewness 2) with a loss equal to the margin in 4.1 and 3.4
%, not 2.5 %, and 99 to 100 % of these runs warn; grades from 1 to 5 pass in 2.1 and 2.4 %, and at most 3 % warn."""

ENOUGH_FOR_TAILS = 300
"""Pairs, or clusters, from which it does not warn: such a loss then passes in 2.7 %."""


def bounded_difference(paired: PairedMetric) -> BoundedEstimate:
    """How much better the candidate is than the baseline."""
    intervals, level = _DifferenceIntervals(paired), paired.confidence_level
    estimate, higher = paired.difference(level), paired.scale.higher_is_better
    smallest, largest = (paired.worst_case_difference(extreme, level) for extreme in ("smallest", "largest"))
    return BoundedEstimate(
        value=_sign(estimate.difference, higher),
        interval_at=intervals.at,
        worst_case_interval_at=intervals.worst_case_at,
        worst_case_values=oriented(
            None if smallest is None else smallest.difference,
            None if largest is None else largest.difference,
            higher_is_better=higher,
        ),
        n=estimate.n_pairs if estimate.n_clusters is None else estimate.n_clusters,
        noun="pairs" if estimate.n_clusters is None else "clusters",
        n_missing=paired.n_missing,
        n_left_out=paired.n_left_out,
        higher_is_better=higher,
        p_value=estimate.p_value,
        reason=estimate.reason,
        reason_code=estimate.reason_code,
        caution=_long_tail(paired, estimate),
    )


def bounded_mean(sample: MetricSample, confidence_level: float) -> BoundedEstimate:
    """The candidate's own mean; yes/no metrics get an exact interval, since a threshold decides on one side only."""
    intervals, higher = _MeanIntervals(sample), sample.scale.higher_is_better
    estimate = sample.mean(confidence_level, exact=True)
    lowest, highest = intervals.worst_case_means(confidence_level)
    return BoundedEstimate(
        value=_sign(estimate.mean, higher),
        interval_at=intervals.at,
        worst_case_interval_at=intervals.worst_case_at,
        worst_case_values=oriented(
            None if lowest is None else lowest.mean, None if highest is None else highest.mean, higher_is_better=higher
        ),
        n=estimate.n if estimate.n_clusters is None else estimate.n_clusters,
        noun="examples" if estimate.n_clusters is None else "clusters",
        n_missing=intervals.n_missing,
        higher_is_better=higher,
        reason=estimate.reason,
        reason_code=estimate.reason_code,
    )


def _long_tail(paired: PairedMetric, estimate: PairedDifference) -> str | None:
    """Warn of values with a long tail, of which a small sample can miss what would be a loss."""
    n, noun = (estimate.n_pairs, "pairs") if estimate.n_clusters is None else (estimate.n_clusters, "clusters")
    if paired.is_binary or n >= ENOUGH_FOR_TAILS:
        return None
    values = np.concatenate([paired.candidate.values, paired.baseline.values])
    skewness = sample_skewness(values[~np.isnan(values)])
    if abs(skewness) < LONG_TAIL:
        return None
    return f"the values have a long tail (skewness {skewness:.1f}), of which {n} {noun} may miss what would be a loss"


@dataclass(frozen=True, slots=True)
class _DifferenceIntervals:
    """Intervals of a paired difference by confidence level."""

    paired: PairedMetric

    def at(self, confidence_level: float) -> Interval | None:
        estimate, higher = self.paired.difference(confidence_level), self.paired.scale.higher_is_better
        return oriented(estimate.low, estimate.high, higher_is_better=higher)

    def worst_case_at(self, confidence_level: float) -> Interval | None:
        if not self.paired.n_missing:
            return self.at(confidence_level)
        ends = [self.paired.worst_case_difference(extreme, confidence_level) for extreme in ("smallest", "largest")]
        return oriented(*_ends(*ends), higher_is_better=self.paired.scale.higher_is_better)


@dataclass(frozen=True, slots=True)
class _MeanIntervals:
    """Intervals of a mean by confidence level."""

    sample: MetricSample

    @property
    def n_missing(self) -> int:
        return int(self.sample.values.missing.sum())

    def at(self, confidence_level: float) -> Interval | None:
        estimate = self.sample.mean(confidence_level, exact=True)
        return oriented(estimate.low, estimate.high, higher_is_better=self.sample.scale.higher_is_better)

    def worst_case_at(self, confidence_level: float) -> Interval | None:
        ends = self.worst_case_means(confidence_level)
        return oriented(*_ends(*ends), higher_is_better=self.sample.scale.higher_is_better)

    def worst_case_means(self, confidence_level: float) -> tuple[MeanEstimate | None, MeanEstimate | None]:
        """The means with all missing values at the lower and at the upper bound; None for an unbounded metric."""
        low, high = self.sample.scale.bounds
        return self._with_missing_as(low, confidence_level), self._with_missing_as(high, confidence_level)

    def _with_missing_as(self, bound: float, confidence_level: float) -> MeanEstimate | None:
        if not self.n_missing:
            return self.sample.mean(confidence_level, exact=True)
        if not self.sample.scale.is_bounded:
            return None
        return self.sample.worst_case_mean(bound, confidence_level, exact=True)


def _ends(
    lowest: PairedDifference | MeanEstimate | None, highest: PairedDifference | MeanEstimate | None
) -> tuple[float | None, float | None]:
    return lowest.low if lowest else None, highest.high if highest else None


def _sign(value: float | None, higher_is_better: bool) -> float | None:
    return value if value is None or higher_is_better else -value
