"""The differences and means that gate rules test, with their intervals, negated if less is better."""

from dataclasses import dataclass

from evalflows.analysis.differences.metric_pairs import MetricSample, PairedMetric
from evalflows.analysis.gates.rules import BoundedEstimate, Interval, oriented
from evalflows.stats import MeanEstimate, PairedDifference


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
