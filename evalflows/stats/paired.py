"""The paired difference between two runs over their common examples, with interval and test; its variance
components; unpaired differences; and pass@k and pass^k.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.clusters import (
    LARGEST,
    Clustering,
    FloatArray,
    NoInterval,
    checked_confidence_level,
    clustering_of,
    degrees_of_freedom,
    few_clusters,
    finite_vector,
    is_rounding,
    mean_of,
    no_spread,
    refuse_where,
    same_length,
    standard_error,
    too_few,
)
from evalflows.stats.means import (
    CORRECTED,
    OF_DIFFERENCES,
    MeanEstimate,
    adjusted_means,
    skewed_t_interval,
    skewed_t_p_value,
    skewness_of_mean,
)
from evalflows.stats.proportions import (
    bonett_price_standard_error,
    checked_bounds,
    clipped,
    constant_interval,
    exact_mcnemar_p,
    paired_score_interval,
    paired_share_interval,
    t_interval,
    t_p_value,
    t_quantile,
)


def pass_at_k(successes: ArrayLike, trials: ArrayLike, k: int) -> FloatArray:
    """Return the probability that at least one of `k` trials succeeds, per example: 1 - C(n - c, k) / C(n, k).

    `successes` (c) has the shape (n_examples,); `trials` (n) has the same shape, or is one number for all examples. The
    result has that shape, 0 to 1. It is the share of the subsets of k trials that contain a success, hence unbiased
    (Chen et al. 2021, Evaluating Large Language Models Trained on Code, eq. 1). Its mean over examples is pass@k.

    Raise ValueError for k below 1 or above an example's trials, for counts that are not whole or are below 0, for more
    successes than trials, and for other shapes.
    """
    passed, total = _counts(successes, trials, k)
    return 1.0 - _share_of_subsets(total - passed, total, k)


def pass_hat_k(successes: ArrayLike, trials: ArrayLike, k: int) -> FloatArray:
    """Return the probability that all of `k` trials succeed, per example: C(c, k) / C(n, k), known as pass^k.

    Shapes and errors are those of `pass_at_k`. It is the share of the subsets of k trials in which all succeed, hence
    unbiased (Yao et al. 2024, tau-bench). For k = 1, both are c / n.
    """
    passed, total = _counts(successes, trials, k)
    return _share_of_subsets(passed, total, k)


def _share_of_subsets(part: FloatArray, total: FloatArray, k: int) -> FloatArray:
    """C(part, k) / C(total, k) as a product of k ratios of at most 1, which cannot overflow."""
    share = np.ones_like(part)
    for drawn in range(k):
        share *= np.maximum(part - drawn, 0.0) / (total - drawn)
    return share


def _counts(successes: ArrayLike, trials: ArrayLike, k: int) -> tuple[FloatArray, FloatArray]:
    passed = finite_vector("successes", successes)
    n_trials = np.asarray(trials, dtype=np.float64)
    total = finite_vector("trials", np.full(passed.shape, n_trials) if n_trials.ndim == 0 else n_trials)
    if total.size != passed.size:
        raise ValueError(f"trials: got {total.size} counts, wanted one for each of {passed.size} examples")
    for name, counts in (("successes", passed), ("trials", total)):
        refuse_where(name, counts, (counts < 0) | (counts != np.floor(counts)), "a whole number of at least 0")
    refuse_where("successes", passed, passed > total, "at most the number of trials")
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k: got {k!r}, wanted a whole number of at least 1")
    refuse_where("trials", total, total < k, f"at least k = {k}")
    return passed, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Variances of the paired difference of one example, in the square of the unit of the values."""

    between: float | None  # of the true difference between examples; None with a reason, like `within`
    within: float | None  # of one repetition of both sides: with K of each, the variance is between + within / K
    observed: float | None  # of the differences of means; None with fewer than two examples
    n: int  # examples with at least one repetition on both sides
    method: str
    reason: str | None  # why `between` and `within` are None; None if they are not


class _Side(NamedTuple):
    means: FloatArray  # shape (n,): of each example
    noise: float | None  # variance of one repetition; None where no example has two
    share: float  # the mean of 1 / K


def difference_components(candidate: ArrayLike, baseline: ArrayLike) -> Components:
    """Split the variance of the paired difference into variance between examples and between repetitions.

    `candidate`, shape (n, K), and `baseline`, shape (n, K2), are the repetitions of the same examples, row by row, nan
    if missing; rows with no value on one side are dropped. The noise of a side is the pooled variance of its
    repetitions within examples, `within` is the sum of both sides' noise, and `between` is the variance of the
    differences of means minus the contribution of noise, each side's noise times its mean of 1 / K: the ANOVA
    estimators (Searle, Casella & McCulloch 1992, chapter 3; Miller 2024, on resampling). Examples count as independent,
    and so does the noise of the two sides. If no example has two repetitions on a side, there are no components; with
    fewer than two examples there is no `observed`.

    Raise ValueError for an inf, for arrays that are not two-dimensional, and for different numbers of examples.
    """
    candidate_rows, baseline_rows = _rows("candidate", candidate), _rows("baseline", baseline)
    if (count := len(candidate_rows)) != len(baseline_rows):
        raise ValueError(f"candidate: got {count} examples, wanted as many as the baseline's {len(baseline_rows)}")
    both = ~(np.isnan(candidate_rows).all(axis=1) | np.isnan(baseline_rows).all(axis=1))
    n = int(both.sum())
    if n < 2:
        return _components(n, None, reason=f"{n or 'no'} example{'' if n == 1 else 's'}: a variance needs at least 2")
    sides = _side(candidate_rows[both]), _side(baseline_rows[both])
    differences = sides[0].means - sides[1].means
    observed = float(((differences - mean_of(differences)) ** 2).sum()) / (n - 1)
    for name, side in zip(("candidate", "baseline"), sides, strict=True):
        if side.noise is None:
            return _components(n, observed, reason=f"no example with 2 repetitions of the {name}: its noise is unknown")
    return _split(n, observed, sides)


def _split(n: int, observed: float, sides: tuple[_Side, _Side]) -> Components:
    noises = [side.noise or 0.0 for side in sides]
    between = observed - sum(noise * side.share for noise, side in zip(noises, sides, strict=True))
    return _components(n, observed, between=between, within=sum(noises))


def _components(
    n: int,
    observed: float | None,
    *,
    between: float | None = None,
    within: float | None = None,
    reason: str | None = None,
) -> Components:
    return Components(
        between=None if between is None else max(between, 0.0),  # negative by chance if it is small
        within=within,
        observed=observed,
        n=n,
        method="anova",
        reason=reason,
    )


def _rows(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {array.shape}, wanted one row per example, one column per repetition")
    if (np.abs(array) > LARGEST).any():
        raise ValueError(f"{name}: got a number that is not finite, wanted finite numbers, or nan if missing")
    return array


def _side(rows: FloatArray) -> _Side:
    """Summarise rows with at least one number each. Equal numbers get variance 0, despite rounding of their mean."""
    present = ~np.isnan(rows)
    counts = present.sum(axis=1)
    filled = np.where(present, rows, np.nanmin(rows, axis=1, keepdims=True))
    lowest, highest = filled.min(axis=1), np.nanmax(rows, axis=1)
    means = np.clip(np.nansum(rows, axis=1) / counts, lowest, highest)
    squares = float((np.where(present, rows - means[:, None], 0.0) ** 2).sum())
    free = int(counts.sum()) - len(rows)
    return _Side(means=means, noise=squares / free if free else None, share=float((1 / counts).mean()))


ADDED = (-1.0, 1.0)
"""The differences that are added to those of yes/no pairs in clusters: one pair lost and one gained."""


class EffectiveCounts(NamedTuple):
    """Yes/no pairs in clusters: the adjusted difference with its error, and counts over the design effect."""

    centre: float  # with two added pairs, like Bonett & Price's closer to 0 than the difference
    error: float
    df: float  # of Student's t
    gained: float
    lost: float
    n: float

    def interval(self, confidence_level: float) -> tuple[float, float]:
        wald = t_interval(self.centre, self.error, df=self.df, confidence_level=confidence_level)
        score = paired_score_interval(self.gained, self.lost, self.n, t_quantile(confidence_level, self.df))
        return min(wald[0], score[0]), max(wald[1], score[1])

    def p_value(self) -> float:
        """1 minus the level at which the interval ends at 0."""
        wald = t_p_value(self.centre, self.error, df=self.df)
        differing = self.gained + self.lost
        score = t_p_value(self.gained - self.lost, math.sqrt(differing), df=self.df) if differing else 1.0
        return max(wald, score)


def effective_counts(differences: FloatArray, clustering: Clustering) -> EffectiveCounts:
    """Return the counts of yes/no `differences`, shape (n,), in at least 2 clusters."""
    gained, lost = float(np.sum(differences > 0)), float(np.sum(differences < 0))
    adjusted = adjusted_means(differences[None], clustering, np.array([gained + lost]), ADDED, OF_DIFFERENCES)
    centre, error, _, design_effect = (float(part[0]) for part in adjusted)
    counts = (gained / design_effect, lost / design_effect, differences.size / design_effect)
    return EffectiveCounts(centre, error, degrees_of_freedom(differences, clustering), *counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Candidate minus baseline over the pairs, in the unit of the values."""

    candidate_mean: float | None  # these three are None without pairs
    baseline_mean: float | None
    difference: float | None
    low: float | None  # of the difference; None with a reason, like `high`
    high: float | None
    p_value: float | None  # two-sided, of no difference; None with fewer than two pairs or clusters
    confidence_level: float  # of the interval, between 0 and 1
    method: str  # of the interval and of the p-value, as one name if both use the same
    n_pairs: int
    n_clusters: int | None  # None if no clusters were given
    reason: str | None  # why there is no interval; None if there is one
    reason_code: NoInterval | None = None
    standard_error: float | None = None  # that the interval is based on; None if it uses none
    warning: str | None = None  # why the interval may be less reliable than it seems; None if it is not

    def rescaled(self, low: float, high: float) -> "PairedDifference":
        """Return the difference of yes/no values for `low` instead of 0 and `high` instead of 1."""
        width, names = high - low, ("candidate_mean", "baseline_mean", "difference", "low", "high", "standard_error")
        values = {name: value for name in names if (value := getattr(self, name)) is not None}
        offset = {"candidate_mean": low, "baseline_mean": low}
        return replace(self, **{name: offset.get(name, 0.0) + width * value for name, value in values.items()})


class _Inference(NamedTuple):
    method: str
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    reason: str | None = None
    standard_error: float | None = None
    warning: str | None = None
    reason_code: NoInterval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pairs:
    """n pairs and the settings of their analysis."""

    candidate: FloatArray  # shape (n,)
    baseline: FloatArray
    clustering: Clustering
    confidence_level: float
    binary: bool
    bounds: tuple[float, float] | None

    @property
    def differences(self) -> FloatArray:
        return self.candidate - self.baseline

    @property
    def scale(self) -> float:
        """The largest size of the numbers that the differences are computed from."""
        return float(max(np.abs(self.candidate).max(), np.abs(self.baseline).max()))

    @property
    def widest(self) -> float:
        """The largest possible size of a difference."""
        return math.inf if self.bounds is None else self.bounds[1] - self.bounds[0]

    def of_clusters(self, name: str) -> str:
        return name if self.clustering.all_singletons else f"{name} of clusters"


def paired_difference(
    candidate: ArrayLike,
    baseline: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    confidence_level: float = 0.95,
    binary: bool = False,
    bounds: tuple[float, float] | None = None,
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
    there is none. With fewer than two pairs or clusters, there is neither interval nor p-value.

    Raise ValueError for a nan or inf, a shape other than (n,), vectors or clusters of different lengths, a nan among
    the clusters, a confidence level not between 0 and 1, with `binary` for a value other than 0 and 1, for bounds not
    in order, and for values outside them.
    """
    candidate_values = finite_vector("candidate", candidate, binary=binary)
    baseline_values = finite_vector("baseline", baseline, binary=binary)
    n = same_length(candidate_values, baseline_values)
    pairs = _Pairs(
        candidate=candidate_values,
        baseline=baseline_values,
        clustering=clustering_of(clusters, n),
        confidence_level=checked_confidence_level(confidence_level),
        binary=binary,
        bounds=checked_bounds((0.0, 1.0) if binary else bounds, candidate=candidate_values, baseline=baseline_values),
    )
    inference = _inference(pairs)
    interval = clipped(inference.interval, -pairs.widest, pairs.widest) if inference.interval else None
    return PairedDifference(
        candidate_mean=mean_of(candidate_values) if n else None,
        baseline_mean=mean_of(baseline_values) if n else None,
        difference=mean_of(pairs.differences) if n else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        p_value=inference.p_value,
        confidence_level=pairs.confidence_level,
        method=inference.method,
        n_pairs=n,
        n_clusters=None if clusters is None else pairs.clustering.count,
        reason=inference.reason,
        reason_code=inference.reason_code,
        standard_error=inference.standard_error,
        warning=inference.warning,
    )


def _inference(pairs: _Pairs) -> _Inference:
    if few := too_few(pairs.candidate.size, pairs.clustering, "pair"):
        return _Inference(_name(pairs), reason=few, reason_code="too_few")
    if pairs.binary and pairs.clustering.all_singletons:
        return _mcnemar(pairs)
    error = standard_error(pairs.differences, pairs.clustering, scale=pairs.scale)
    if pairs.binary and (error or not pairs.differences.any()):
        return _by_effective_counts(pairs)
    return _t(pairs, error) if error else _without_spread(pairs)


def _name(pairs: _Pairs) -> str:
    """Name of the method, also if there is no interval."""
    if pairs.clustering.all_singletons:
        return "bonett-price and tango; exact mcnemar" if pairs.binary else CORRECTED
    return "cluster-robust bonett-price and tango" if pairs.binary else f"cluster-robust {CORRECTED}"


def _mcnemar(pairs: _Pairs) -> _Inference:
    gained, lost = int(np.sum(pairs.differences > 0)), int(np.sum(pairs.differences < 0))
    return _Inference(
        _name(pairs),
        paired_share_interval(gained, lost, pairs.candidate.size, confidence_level=pairs.confidence_level),
        exact_mcnemar_p(gained, lost),
        standard_error=bonett_price_standard_error(gained, lost, pairs.candidate.size),
    )


def _t(pairs: _Pairs, error: float) -> _Inference:
    difference, df = mean_of(pairs.differences), degrees_of_freedom(pairs.differences, pairs.clustering)
    skewness = skewness_of_mean(pairs.differences, pairs.clustering, error)
    return _Inference(
        _name(pairs),
        skewed_t_interval(difference, error, skewness, df=df, confidence_level=pairs.confidence_level),
        skewed_t_p_value(difference, error, skewness, df=df),
        standard_error=error,
        warning=few_clusters(pairs.clustering),
    )


def _by_effective_counts(pairs: _Pairs) -> _Inference:
    """The union of the intervals of Bonett & Price and of Tango, and the larger p-value of both, for clusters."""
    counts = effective_counts(pairs.differences, pairs.clustering)
    return _Inference(
        _name(pairs),
        counts.interval(pairs.confidence_level),
        counts.p_value(),
        standard_error=counts.error,
        warning=few_clusters(pairs.clustering),
    )


def _without_spread(pairs: _Pairs) -> _Inference:
    """p by exact sign flips: of 2 ** G sign patterns, only the observed and its reverse are as far from 0."""
    difference, count = mean_of(pairs.differences), pairs.clustering.count
    p_value = 1.0 if is_rounding(abs(difference), pairs.scale) else math.ldexp(1.0, 1 - count)
    interval = constant_interval(
        difference, count, (-pairs.widest, pairs.widest), confidence_level=pairs.confidence_level
    )
    name = (
        f"{pairs.of_clusters('clopper-pearson') if interval else 'no interval'}; {pairs.of_clusters('exact sign-flip')}"
    )
    reason = None if interval else no_spread(pairs.differences, pairs.clustering, "difference", scale=pairs.scale)
    code: NoInterval | None = None if interval else "no_spread"
    return _Inference(name, interval, p_value, reason, reason_code=code)


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
