"""The mean over the examples of a run, and its confidence interval."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, mean_of
from evalflows.stats.clusters import (
    Clustering,
    NoInterval,
    clustering_of,
    degrees_of_freedom,
    no_spread,
    standard_error,
    too_few,
)
from evalflows.stats.distributions import checked_bounds, clipped, t_quantile
from evalflows.stats.proportions import clopper_pearson_interval, constant_interval, score_interval, wilson_interval
from evalflows.stats.rare_values import OF_SHARES, adjusted_means
from evalflows.stats.skewness import CORRECTED, skewed_t_interval, skewness_of_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanEstimate:
    """A mean and its interval, in the unit of the values."""

    mean: float | None  # None without examples
    low: float | None  # None with a reason, like `high`
    high: float | None
    confidence_level: float  # of the interval, between 0 and 1
    method: str  # of the interval, such as "skew-corrected t", "wilson", "cluster-robust wilson"
    n: int  # number of examples
    n_clusters: int | None  # None if no clusters were given
    reason: str | None  # why there is no interval; None if there is one
    reason_code: NoInterval | None = None
    standard_error: float | None = None  # None without an interval, or if the interval is Clopper & Pearson's

    def rescaled(self, low: float, high: float) -> "MeanEstimate":
        """Return the estimate of yes/no values for `low` instead of 0 and `high` instead of 1."""

        def scaled(share: float | None) -> float | None:
            return None if share is None else low + (high - low) * share

        error = None if self.standard_error is None else (high - low) * self.standard_error
        return replace(self, mean=scaled(self.mean), low=scaled(self.low), high=scaled(self.high), standard_error=error)


class _Inference(NamedTuple):
    method: str
    interval: tuple[float, float] | None = None
    reason: str | None = None
    reason_code: NoInterval | None = None
    standard_error: float | None = None


def mean_estimate(
    values: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    confidence_level: float = 0.95,
    binary: bool = False,
    exact: bool = False,
    bounds: tuple[float, float] | None = None,
) -> MeanEstimate:
    """Return the mean of `values`, shape (n,), one finite number per example, with a two-sided interval.

    The interval is Student's t (Student 1908) corrected for skew (Hall 1992; `stats.skewness`). For 0 and 1 (`binary`)
    it is the score interval (Wilson 1927), or with `exact` that of Clopper & Pearson (1934), which is wider but has
    guaranteed coverage on both sides for every proportion. With `clusters`, n hashables, it uses the cluster-robust
    standard error (Cameron & Miller 2015; Miller 2024) and t with the degrees of freedom of
    `stats.clusters.degrees_of_freedom`; for 0 and 1, `cluster_wilson_interval`. An example with cluster None is its own
    cluster; if all are, the method without clusters is used. There is no interval with fewer than two examples or
    clusters.

    `bounds`, the lowest and highest possible value, clip the interval. If the values do not vary, the interval follows
    from the bounds and the largest share of other values that could have been missed (Clopper & Pearson 1934), counted
    in clusters if there are any; without bounds there is no interval then. `exact` has no effect on other numbers or
    with clusters.

    Raise ValueError for a nan or inf, a shape other than (n,), another number of clusters, a nan among them, a
    confidence level not between 0 and 1, bounds not in order, a value outside them, and with `binary` for a value other
    than 0 and 1.
    """
    confidence_level, numbers = (
        checked_confidence_level(confidence_level),
        finite_vector("values", values, binary=binary),
    )
    bounds = checked_bounds(bounds, values=numbers)
    clustering = clustering_of(clusters, numbers.size)
    inference = _inference(numbers, clustering, bounds, confidence_level=confidence_level, binary=binary, exact=exact)
    interval = clipped(inference.interval, *bounds) if inference.interval and bounds else inference.interval
    return MeanEstimate(
        mean=mean_of(numbers) if numbers.size else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=confidence_level,
        method=inference.method,
        n=numbers.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=inference.reason,
        reason_code=inference.reason_code,
        standard_error=inference.standard_error,
    )


def cluster_wilson_interval(
    values: FloatArray, clustering: Clustering, *, confidence_level: float
) -> tuple[float, float]:
    """Return an interval, within 0 to 1, for the share of 1 among `values`, shape (n,), with at least 2 clusters.

    It is Wilson's interval for the effective sample size (Korn & Graubard 1998, for exact intervals; Dean & Pagano
    2015): p (1 - p) / se^2, the number of independent values with the same cluster-robust standard error, at most n; if
    the cluster means do not vary, the number of clusters. It is also at most the effective size after adding a 0 and a
    1, each with the weight of one independent value (`stats.rare_values`). The quantile is that of t.
    """
    quantile = t_quantile(confidence_level, degrees_of_freedom(values, clustering))
    return score_interval(mean_of(values), effective_size(values, clustering), quantile)


def share_standard_error(values: FloatArray, clustering: Clustering) -> float:
    """Return the standard error sqrt(p (1 - p) / n) of the share of 1, shape (n,), at the centre of Wilson's interval.

    n is the effective sample size of `cluster_wilson_interval`, p the share with two 0 and two 1 added to it (Agresti &
    Coull 1998), so that it is above 0 even if all values are equal.
    """
    n = float(values.size) if clustering.all_singletons else effective_size(values, clustering)
    share = (mean_of(values) * n + 2) / (n + 4)
    return math.sqrt(share * (1 - share) / (n + 4))


def effective_size(values: FloatArray, clustering: Clustering) -> float:
    """Return the number of independent values, above 0 and at most n, that tell as much as these; see above."""
    share, error = mean_of(values), standard_error(values, clustering, scale=1.0)
    effective = share * (1 - share) / error**2 if error else float(clustering.count)
    return min(float(values.size), effective, _effective_size_with_two_added_values(values, clustering))


def _effective_size_with_two_added_values(values: FloatArray, clustering: Clustering) -> float:
    """The effective sample size, estimated after adding a 0 and a 1."""
    rarer = min(float(values.sum()), values.size - float(values.sum()))
    adjusted = adjusted_means(values[None], clustering, np.array([rarer]), (0.0, 1.0), OF_SHARES)
    share, error, n, _ = (float(part[0]) for part in adjusted)
    return share * (1 - share) / error**2 * values.size / n


def _inference(
    values: FloatArray,
    clustering: Clustering,
    bounds: tuple[float, float] | None,
    *,
    confidence_level: float,
    binary: bool,
    exact: bool,
) -> _Inference:
    method = _name(clustering, binary=binary, exact=exact)
    if few := too_few(values.size, clustering, "value"):
        return _Inference(method, reason=few, reason_code="too_few")
    if binary and clustering.all_singletons:
        interval_of = clopper_pearson_interval if exact else wilson_interval
        interval = interval_of(int(values.sum()), values.size, confidence_level=confidence_level)
        return _Inference(method, interval, standard_error=None if exact else share_standard_error(values, clustering))
    if binary:
        interval = cluster_wilson_interval(values, clustering, confidence_level=confidence_level)
        return _Inference(method, interval, standard_error=share_standard_error(values, clustering))
    scale = float(np.abs(values).max())
    if error := standard_error(values, clustering, scale=scale):
        df = degrees_of_freedom(values, clustering)
        skewness = skewness_of_mean(values, clustering, error)
        interval = skewed_t_interval(mean_of(values), error, skewness, df=df, confidence_level=confidence_level)
        return _Inference(method, interval, standard_error=error)
    constant = constant_interval(mean_of(values), clustering.count, bounds, confidence_level=confidence_level)
    if constant is not None:
        return _Inference("clopper-pearson" if clustering.all_singletons else "clopper-pearson of clusters", constant)
    reason = no_spread(values, clustering, "value", scale=scale)
    return _Inference(method, reason=reason, reason_code="no_spread")


def _name(clustering: Clustering, *, binary: bool, exact: bool) -> str:
    if not clustering.all_singletons:
        return "cluster-robust wilson" if binary else f"cluster-robust {CORRECTED}"
    return CORRECTED if not binary else "clopper-pearson" if exact else "wilson"
