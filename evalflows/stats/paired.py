"""The paired difference between two runs over their common examples, with interval and test; its variance components;
unpaired differences; and pass@k and pass^k."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats import means, proportions
from evalflows.stats.arrays import (
    ROUNDING,
    FloatArray,
    checked_confidence_level,
    finite_vector,
    mean_of,
    means_of,
    same_length,
    vector,
)
from evalflows.stats.bounded_means import GAFFKE, bounded_intervals
from evalflows.stats.clusters import (
    Clustering,
    NoInterval,
    clustering_of,
    degrees_of_freedom,
    few_clusters,
    no_spread,
    standard_error,
    too_few,
)

ADDED = (-1.0, 1.0)
"""The differences that are added to those of yes/no pairs in clusters: one pair lost and one gained."""


class Discordant(NamedTuple):
    """Independent yes/no pairs: how many were gained and lost, of n; whole numbers, except in planning."""

    gained: float
    lost: float
    n: float

    @property
    def error(self) -> float:
        return proportions.bonett_price_standard_error(*self)

    def interval(self, confidence_level: float) -> tuple[float, float]:
        return proportions.paired_share_interval(*self, confidence_level=confidence_level)

    def p_value(self) -> float:
        return proportions.exact_mcnemar_p(self.gained, self.lost)

    def times(self, ratio: float) -> "Discordant":
        """Return the counts of so many times as many pairs."""
        return Discordant(self.gained * ratio, self.lost * ratio, self.n * ratio)


class EffectiveCounts(NamedTuple):
    """Yes/no pairs in clusters: the adjusted difference with its error, and counts over the design effect."""

    centre: float  # with two added pairs, like Bonett & Price's closer to 0 than the difference
    error: float
    df: float  # of Student's t
    gained: float
    lost: float
    n: float

    def interval(self, confidence_level: float) -> tuple[float, float]:
        """Return the union of the intervals of Bonett & Price and of Tango for clusters."""
        wald = proportions.t_interval(self.centre, self.error, df=self.df, confidence_level=confidence_level)
        score = proportions.paired_score_interval(
            self.gained, self.lost, self.n, proportions.t_quantile(confidence_level, self.df)
        )
        return min(wald[0], score[0]), max(wald[1], score[1])

    def p_value(self) -> float:
        """1 minus the level at which the interval ends at 0."""
        wald = proportions.t_p_value(self.centre, self.error, df=self.df)
        differing = self.gained + self.lost
        score = proportions.t_p_value(self.gained - self.lost, math.sqrt(differing), df=self.df) if differing else 1.0
        return max(wald, score)

    def times(self, ratio: float) -> "EffectiveCounts":
        """Return the counts of so many times as many clusters."""
        counts = self.gained * ratio, self.lost * ratio, self.n * ratio
        return EffectiveCounts(self.centre, self.error / math.sqrt(ratio), (self.df + 1) * ratio - 1, *counts)


Counts = Discordant | EffectiveCounts


def effective_counts(differences: FloatArray, clustering: Clustering) -> list[EffectiveCounts]:
    """Return the counts of each row of yes/no `differences`, shape (R, n), in at least 2 clusters."""
    gained, lost = ((differences * sign > 0).sum(axis=1).astype(np.float64) for sign in (1, -1))
    adjusted = means.adjusted_means(differences, clustering, gained + lost, ADDED, means.OF_DIFFERENCES)
    counts = [count / adjusted.design_effect for count in (gained, lost, np.full(len(gained), differences.shape[1]))]
    columns = (adjusted.mean, adjusted.error, degrees_of_freedom(differences, clustering), *counts)
    return [EffectiveCounts(*row) for row in np.column_stack(columns).tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference(proportions.IntervalEstimate):
    """Candidate minus baseline over the pairs, in the unit of the values."""

    candidate_mean: float | None  # these three are None without pairs
    baseline_mean: float | None
    difference: float | None
    p_value: float | None  # two-sided, of no difference; None with fewer than two pairs or clusters
    method: str  # of the interval and of the p-value, as one name if both use the same
    n_pairs: int
    tested_low: float | None = None  # of the interval that the p-value is of, without values that were not drawn
    tested_high: float | None = None
    n_clusters: int | None  # None if no clusters were given
    reason_code: NoInterval | None = None
    standard_error: float | None = None  # of the difference by its pairs alone; None without an interval or spread
    warning: str | None = None  # why the interval may be less reliable than it seems; None if it is not


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifferences:
    """`paired_difference` of R replicates of n pairs each, at any confidence level.

    The clusters are the same in all replicates.
    """

    candidate: FloatArray  # shape (R, n)
    baseline: FloatArray
    clustering: Clustering
    is_clustered: bool  # whether clusters were given
    binary: bool
    bounds: tuple[float, float]  # the lowest and highest possible value; infinite if unknown
    rare_values: bool  # whether the interval allows for values that were not drawn
    complementary: bool  # whether what the candidate gains in a pair, the baseline loses
    too_few: str | None  # why there are too few pairs for an interval and a p-value
    difference: FloatArray  # shape (R,); nan without pairs
    error: FloatArray  # shape (R,): the standard error that the interval is based on; 0 without variation
    df: FloatArray  # shape (R,): of Student's t
    skewness: FloatArray  # shape (R,): of the mean, for which the interval is corrected
    counts: Sequence[Counts | None] | None  # of yes/no pairs, by replicate; None for one whose clusters do not vary
    ends: tuple[float, float] | None = None  # the numbers that stand for no and yes, if they are not 0 and 1
    limit: float = math.inf  # the intervals are clipped to this size, too
    times: float = 1.0  # how many times as many pairs the intervals are of

    @property
    def n(self) -> int:
        """Pairs, or clusters if there are any."""
        return self.clustering.count if self.is_clustered else self.candidate.shape[1]

    @property
    def widest(self) -> float:
        """The largest possible size of a difference."""
        return self.bounds[1] - self.bounds[0]

    @property
    def has_interval(self) -> NDArray[np.bool_]:
        """Shape (R,)."""
        known = (self.error > 0) | bool(np.isfinite(self.widest))
        return np.asarray(known & (self.too_few is None))

    @property
    def p_value(self) -> FloatArray:
        """The two-sided p-values of no difference, shape (R,); nan if there are too few pairs."""
        if self.too_few is not None:
            return np.full(len(self.error), np.nan)
        difference, constant = self.difference, self.error == 0
        # Exact sign flips: of 2 ** G sign patterns, only the observed and its reverse are as far from 0.
        scale, count = _scale(self.candidate, self.baseline), self.clustering.count
        flipped = np.where(np.abs(difference) <= ROUNDING * scale, 1.0, math.ldexp(1.0, 1 - count))
        if self.counts is not None:
            known = {row: row.p_value() for row in {*self.counts} if row is not None}
            p_values = np.array([known[row] if row is not None else 1.0 for row in self.counts])
        else:
            error = np.where(constant, 1.0, self.error)
            p_values = means.skewed_t_p_value(difference, error, self.skewness, df=self.df)
        return np.where(constant, flipped, p_values)

    def interval_at(self, confidence_level: float) -> tuple[FloatArray, FloatArray]:
        """Return the two-sided intervals, each end of shape (R,); infinite where there is none.

        In known bounds they allow for values that were not drawn: a pair whose candidate has the worst value, with the
        largest baseline of all pairs, and one whose candidate has the best value, with the smallest; of complementary
        sides, a pair wholly lost and one wholly gained.

        Raise ValueError for a confidence level not between 0 and 1.
        """
        low, high = self.tested_interval_at(confidence_level)
        constant, is_bounded = self.error == 0, math.isfinite(self.widest)
        allows = is_bounded and self.rare_values and self.counts is None
        if self.too_few is not None or not is_bounded or not (allows or constant.any()):
            return low, high
        smallest, largest = self._extremes
        allowing = bounded_intervals(
            self.candidate - self.baseline,
            self.clustering,
            smallest,
            largest,
            confidence_level=confidence_level,
            times=self.times,
        )
        replaced = constant | (allows and self.clustering.all_singletons)
        ends = self._in_range(*allowing)
        widened = (np.minimum(low, ends[0]), np.maximum(high, ends[1])) if allows else (low, high)
        return np.where(replaced, ends[0], widened[0]), np.where(replaced, ends[1], widened[1])

    @property
    def _extremes(self) -> tuple[FloatArray, FloatArray]:
        """The smallest and the largest difference of a pair that was not drawn, each of shape (R,)."""
        if self.binary or self.complementary:
            return np.full(len(self.error), -self.widest), np.full(len(self.error), self.widest)
        return self.bounds[0] - self.baseline.max(axis=1), self.bounds[1] - self.baseline.min(axis=1)

    def tested_interval_at(self, confidence_level: float) -> tuple[FloatArray, FloatArray]:
        """Return the intervals that the p-values are of, which allow for no value that was not drawn.

        A difference that does not vary is its own interval. Raise ValueError as `interval_at` does.
        """
        level, has_interval = checked_confidence_level(confidence_level), self.has_interval
        if not has_interval.any():
            return np.full(len(self.error), -np.inf), np.full(len(self.error), np.inf)
        difference, constant = self.difference, self.error == 0
        if self.counts is not None:
            known = {row: row.interval(level) for row in {*self.counts} if row is not None}
            ends = np.array([known[row] if row is not None else (0.0, 0.0) for row in self.counts])
            low, high = ends[:, 0], ends[:, 1]
        else:
            low, high = means.skewed_t_interval(
                difference, self.error, self.skewness, df=self.df, confidence_level=level
            )
        low, high = self._in_range(np.where(constant, difference, low), np.where(constant, difference, high))
        return np.where(has_interval, low, -np.inf), np.where(has_interval, high, np.inf)

    def _in_range(self, *ends: FloatArray) -> tuple[FloatArray, FloatArray]:
        low, high = (self._scaled(end.clip(-self.widest, self.widest)).clip(-self.limit, self.limit) for end in ends)
        return low, high

    def of_size(self, n: int) -> "PairedDifferences":
        """Return what n pairs (clusters, if there are any) would give with these means, spread and shares.

        Only its intervals have a meaning: they say how many pairs would be enough.
        """
        ratio = n / self.clustering.count
        counts = None if self.counts is None else [None if row is None else row.times(ratio) for row in self.counts]
        return replace(
            self,
            error=self.error / math.sqrt(ratio),
            df=(self.df + 1) * ratio - 1,
            skewness=self.skewness / math.sqrt(ratio),
            counts=counts,
            times=self.times * ratio,
        )

    def at(self, confidence_level: float) -> PairedDifference:
        """Return the difference of a single replicate."""
        (low,), (high,) = (end.tolist() for end in self.interval_at(confidence_level))
        tested = [float(end[0]) for end in self.tested_interval_at(confidence_level)]
        (p_value,), (error,), (has_interval,) = self.p_value.tolist(), self.error.tolist(), self.has_interval.tolist()
        n, alone = self.candidate.shape[1], self.clustering.all_singletons
        is_constant = not error and self.clustering.count > 1
        reason = self.too_few
        if reason is None and not has_interval:
            scale = float(_scale(self.candidate, self.baseline)[0])
            reason = no_spread((self.candidate - self.baseline)[0], self.clustering, "difference", scale=scale)
        candidate, baseline = (mean_of(rows[0]) if n else None for rows in (self.candidate, self.baseline))
        difference = float(self.difference[0]) if n else None
        if self.ends is not None:
            first = self.ends[0]
            candidate, baseline = (
                None if mean is None else first + float(self._scaled(mean)) for mean in (candidate, baseline)
            )
            difference = None if difference is None else float(self._scaled(difference))
        return PairedDifference(
            candidate_mean=candidate,
            baseline_mean=baseline,
            difference=difference,
            low=low if has_interval else None,
            high=high if has_interval else None,
            p_value=None if self.too_few is not None else p_value,
            confidence_level=float(confidence_level),
            method=self._method(is_constant),
            n_pairs=n,
            tested_low=tested[0] if has_interval else None,
            tested_high=tested[1] if has_interval else None,
            n_clusters=self.clustering.count if self.is_clustered else None,
            reason=reason,
            reason_code=None if reason is None else "too_few" if self.too_few is not None else "no_spread",
            standard_error=float(self._scaled(error)) if error else None,
            warning=few_clusters(self.clustering) if error and not alone else None,
        )

    def _scaled(self, value: Any) -> Any:
        """Return a size of yes/no values in the unit of the numbers that stand for them."""
        return value if self.ends is None else 0.0 + (self.ends[1] - self.ends[0]) * value

    def _method(self, is_constant: bool) -> str:
        alone = self.clustering.all_singletons
        if is_constant:
            of = "" if alone else " of clusters"
            interval = f"clopper-pearson{of}" if math.isfinite(self.widest) else "no interval"
            return f"{interval}; exact sign-flip{of}"
        if self.binary:
            return "bonett-price and tango; exact mcnemar" if alone else "cluster-robust bonett-price and tango"
        name = means.CORRECTED if alone else f"cluster-robust {means.CORRECTED}"
        if not self.rare_values or not math.isfinite(self.widest):
            return name
        return f"{GAFFKE}; {name}" if alone else f"{GAFFKE} and {name}; {name}"


def paired_difference(
    candidate: ArrayLike,
    baseline: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    confidence_level: float = 0.95,
    binary: bool = False,
    bounds: tuple[float, float] | None = None,
    rare_values: bool = True,
    complementary: bool = False,
) -> PairedDifference:
    """Return the mean of `candidate` minus that of `baseline`, both finite, of shape (n,), and matched by position.

    Interval and p-value are those of Student's paired t (Student 1908), corrected for skew (Hall 1992;
    `stats.means`). For 0 and 1 (`binary`), the interval is the union of the adjusted Wald interval (Bonett & Price
    2012) and the score interval (Tango 1998), and the test is the exact McNemar test (McNemar 1947) for any number of
    discordant pairs. With `clusters`, n hashables, both use t with the cluster-robust standard error (Cameron & Miller
    2015; Miller 2024) and the degrees of freedom of `stats.clusters.degrees_of_freedom`; for 0 and 1, they
    are the intervals of Bonett & Price and of Tango for clusters, and the larger p-value of both: Bonett & Price's two
    added pairs each have the weight of one independent pair (`stats.means`), and Tango's counts are divided by
    the design effect. A pair with cluster None is its own cluster; if all are, the method without clusters is used.

    `bounds`, the lowest and highest possible value (not difference), clip the interval to the possible differences; for
    0 and 1 they are 0 and 1. If the differences (or cluster means) do not vary, except for 0 and 1 without any
    difference, p is that of the exact sign-flip test
    (Fisher 1935): 1.0 if the difference is 0, else 2 ** (1 - their number). The interval then follows from the bounds
    and the largest share of other differences that could have been missed (Clopper & Pearson 1934); without bounds
    there is none. If they vary, other numbers than 0 and 1 with bounds have the interval of Gaffke
    (`stats.bounded_means`), which allows for rare values that were not drawn; with clusters, each end is the farther
    one of it and of t. The p-value needs no such allowance, since it is of no difference at all. Without `rare_values`
    the interval is that of t too. Sides are `complementary` if each pair shares out the same sum, as a win rate does:
    then a pair that was not drawn may have been lost or gained wholly, even if all drawn ones are ties. With fewer than
    two pairs or clusters, there is neither interval nor p-value.

    Raise ValueError for a nan or inf, a shape other than (n,), vectors or clusters of different lengths, a nan among
    the clusters, a confidence level not between 0 and 1, with `binary` for a value other than 0 and 1, for bounds not
    in order, and for values outside them.
    """
    sides = vector("candidate", candidate), vector("baseline", baseline)
    same_length(*sides)
    sides = sides[0][None], sides[1][None]
    single = paired_differences(
        *sides, clusters, binary=binary, bounds=bounds, rare_values=rare_values, complementary=complementary
    )
    return single.at(confidence_level)


def paired_differences(
    candidate: FloatArray,
    baseline: FloatArray,
    clusters: Sequence[Hashable] | None = None,
    *,
    binary: bool = False,
    bounds: tuple[float, float] | None = None,
    rare_values: bool = True,
    complementary: bool = False,
) -> PairedDifferences:
    """Return `paired_difference` of each row of `candidate` and `baseline`, both of shape (R, n).

    Raise ValueError as it does, except for a confidence level.
    """
    for name, side in (("candidate", candidate), ("baseline", baseline)):
        finite_vector(name, side.ravel(), binary=binary)
    if binary:
        bounds = (0.0, 1.0)
    bounds = proportions.checked_bounds(bounds, candidate=candidate.ravel(), baseline=baseline.ravel())
    count, n = candidate.shape
    clustering, zeros = clustering_of(clusters, n), np.zeros(count)
    candidate, baseline = np.ascontiguousarray(candidate), np.ascontiguousarray(baseline)
    few = too_few(n, clustering, "pair")
    error, df, skewness = zeros, zeros, zeros
    counts: Sequence[Counts | None] | None = None
    differences = candidate - baseline
    if few is None and binary and clustering.all_singletons:
        gained, lost = ((differences * sign > 0).sum(axis=1).tolist() for sign in (1, -1))
        counts = [Discordant(*pair, n) for pair in zip(gained, lost, strict=True)]
    elif few is None:
        error = standard_error(differences, clustering, scale=_scale(candidate, baseline))
        if binary:
            varies = (error > 0) | ~differences.any(axis=1)
            all_counts = zip(effective_counts(differences, clustering), varies.tolist(), strict=True)
            counts = [row if does_vary else None for row, does_vary in all_counts]
        else:
            df = degrees_of_freedom(differences, clustering)
            skewness = means.skewness_of_mean(differences, clustering, np.where(error > 0, error, np.inf))
    if counts is not None:
        error = np.array([0.0 if row is None else row.error for row in counts])
    return PairedDifferences(
        candidate=candidate,
        baseline=baseline,
        clustering=clustering,
        is_clustered=clusters is not None,
        binary=binary,
        bounds=bounds or (-math.inf, math.inf),
        rare_values=rare_values,
        complementary=complementary,
        too_few=few,
        difference=means_of(differences) if n else np.full(count, np.nan),
        error=error,
        df=df,
        skewness=skewness,
        counts=counts,
    )


def _scale(candidate: FloatArray, baseline: FloatArray) -> FloatArray:
    """Return the largest size of the numbers that each replicate's differences are computed from, shape (R,)."""
    return np.asarray(np.maximum(np.abs(candidate).max(axis=1), np.abs(baseline).max(axis=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedDifference(proportions.IntervalEstimate):
    """The candidate's mean minus the baseline's, over different items."""

    difference: float | None
    standard_error: float | None = None
    reason_code: NoInterval | None = None


def unpaired_difference(candidate: means.MeanEstimate, baseline: means.MeanEstimate) -> UnpairedDifference:
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
        reason=None,
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


def _ends(estimate: means.MeanEstimate) -> tuple[float, float] | None:
    """Return the distances of a mean to the ends of its interval; None without an interval."""
    if estimate.mean is None or estimate.low is None or estimate.high is None:
        return None
    return estimate.mean - estimate.low, estimate.high - estimate.mean
