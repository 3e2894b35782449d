"""The difference of two means over different items, with an interval that does not assume equal variances."""

import math
from dataclasses import dataclass, replace

from evalflows.stats.clusters import NoInterval
from evalflows.stats.mean import MeanEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedDifference:
    """The candidate's mean minus the baseline's, over different items."""

    difference: float | None
    low: float | None
    high: float | None
    confidence_level: float
    method: str
    standard_error: float | None = None
    reason: str | None = None
    reason_code: NoInterval | None = None


def unpaired_difference(candidate: MeanEstimate, baseline: MeanEstimate) -> UnpairedDifference:
    """Return the difference of two independent means, with a two-sided interval from their own intervals.

    Each end takes the distance of either mean to the end of its interval that counts there: with means m and intervals
    l to u, the lower end is m1 - m2 - sqrt((m1 - l1)^2 + (u2 - m2)^2), the upper end the mirror image (MOVER: Zou &
    Donner 2008). For two shares with Wilson's intervals this is Newcombe's interval (1998, method 10); for two means
    with t intervals it is that of Welch (1947) with each side's own quantile of t, which is a little wider in small
    samples. So it has the properties of the two intervals: cluster-robust, corrected for skew, weighted by inverse
    sampling probability, and defined if the values of a side do not vary but are bounded. The two sides must be
    independent. The intervals may touch their bounds; the difference is not clipped.

    There is no interval if one of the means has none. Raise ValueError for two confidence levels.
    """
    if candidate.confidence_level != baseline.confidence_level:
        levels = f"{candidate.confidence_level:g} and {baseline.confidence_level:g}"
        raise ValueError(f"confidence level: got {levels}, wanted the same for both means")
    whole = UnpairedDifference(
        difference=None if candidate.mean is None or baseline.mean is None else candidate.mean - baseline.mean,
        low=None,
        high=None,
        confidence_level=candidate.confidence_level,
        method=f"difference of independent means, from intervals: {candidate.method}; {baseline.method}",
    )
    ours, theirs = _ends(candidate), _ends(baseline)
    if whole.difference is None or ours is None or theirs is None:
        side, lacking = ("candidate", candidate) if ours is None else ("baseline", baseline)
        return replace(whole, reason=f"{side}: {lacking.reason}", reason_code=lacking.reason_code)
    (below, above), (below_baseline, above_baseline) = ours, theirs
    errors = (candidate.standard_error, baseline.standard_error)
    return replace(
        whole,
        low=whole.difference - math.hypot(below, above_baseline),
        high=whole.difference + math.hypot(above, below_baseline),
        standard_error=None if errors[0] is None or errors[1] is None else math.hypot(errors[0], errors[1]),
    )


def _ends(estimate: MeanEstimate) -> tuple[float, float] | None:
    """Return the distances of a mean to the ends of its interval; None without an interval."""
    if estimate.mean is None or estimate.low is None or estimate.high is None:
        return None
    return estimate.mean - estimate.low, estimate.high - estimate.mean
