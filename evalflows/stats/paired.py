"""The paired difference between two runs over their common examples, with interval and test."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, mean_of, same_length
from evalflows.stats.clusters import (
    Clustering,
    NoInterval,
    clustering_of,
    degrees_of_freedom,
    few_clusters,
    is_rounding,
    no_spread,
    standard_error,
    too_few,
)
from evalflows.stats.differences.effective_counts import effective_counts
from evalflows.stats.distributions import checked_bounds, clipped
from evalflows.stats.proportions import (
    bonett_price_standard_error,
    constant_interval,
    exact_mcnemar_p,
    paired_share_interval,
)
from evalflows.stats.skewness import CORRECTED, skewed_t_interval, skewed_t_p_value, skewness_of_mean


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
    `stats.skewness`). For 0 and 1 (`binary`), the interval is the union of the adjusted Wald interval (Bonett & Price
    2012) and the score interval (Tango 1998), and the test is the exact McNemar test (McNemar 1947) for any number of
    discordant pairs. With `clusters`, n hashables, both use t with the cluster-robust standard error (Cameron & Miller
    2015; Miller 2024) and the degrees of freedom of `stats.clusters.degrees_of_freedom`; for 0 and 1, they
    are the intervals of Bonett & Price and of Tango for clusters, and the larger p-value of both: Bonett & Price's two
    added pairs each have the weight of one independent pair (`stats.rare_values`), and Tango's counts are divided by
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
