"""Student's t corrected for skewness: intervals and p-values for the mean of values with one long tail.

The ratio of a mean's error to its estimated standard error is biased away from the tail, to first order by
a (1 + 2 t^2) / 6, where a is the skewness of the mean (Hall 1992). The interval here is longer than that of t on the
side of the tail, and never shorter on the other. In simulations (20,000 runs of 30 log-normal values, log-sd 1), 95 %
t intervals cover the mean in 90.3 %, and nearly all misses are on the side of the tail; corrected intervals cover in
94.3 % and are 22 % wider. Without skewness the cost is small: for 30 normal values the interval is 3 % wider and tests
at 5 % reject falsely in 4.3 %; for 100 values, 0.7 % and 4.8 %.
"""

import numpy as np

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering
from evalflows.stats.distributions import t_p_value, t_quantile

CORRECTED = "skew-corrected t"
"""Name of the method in results."""

CLOSE = 1e-4
"""Below this skewness times ratio, the series of the inverse is exact up to rounding."""


def skewness_of_mean(values: FloatArray, clustering: Clustering, error: float) -> float:
    """Return the skewness of the mean of `values`, shape (n,); `error` is the mean's standard error, above 0.

    It is G1 / sqrt(n), where G1 is the adjusted sample skewness (Joanes & Gill 1998). With clusters, it is that
    of the clusters' sums of deviations from the mean. 0.0 for fewer than three values or clusters.
    """
    sums = np.bincount(clustering.numbers, weights=values - values.mean(), minlength=clustering.count)
    return float(skewnesses_of_mean(sums[None].astype(np.float64), values.size, np.array([error]))[0])


def skewnesses_of_mean(sums: FloatArray, n: int, errors: FloatArray) -> FloatArray:
    """Return the skewness of R means of n values each, shape (R,).

    `sums`, shape (R, G), are the clusters' sums of deviations from the mean; `errors`, shape (R,), the standard errors.
    """
    count = sums.shape[1]
    if count < 3:
        return np.zeros(len(sums))
    parts = sums / (n * errors)[:, None]
    return np.asarray((parts**3).sum(axis=1) * count**2 / ((count - 1) * (count - 2)))


def sample_skewness(values: FloatArray) -> float:
    """Return the adjusted skewness G1 (Joanes & Gill 1998) of `values`, shape (n,).

    0.0 for fewer than three values, or equal ones.
    """
    deviations = values - values.mean() if values.size else values
    largest = float(np.abs(deviations).max(initial=0.0))
    if values.size < 3 or not largest:
        return 0.0
    n, parts = values.size, deviations / largest  # so that cubes do not overflow
    return float(np.mean(parts**3) / np.mean(parts**2) ** 1.5 * np.sqrt(n * (n - 1)) / (n - 2))


def skewed_quantile(quantile: FloatArray, skewness: FloatArray) -> FloatArray:
    """Return how many standard errors the interval extends on the side to which `skewness` is positive.

    `quantile`, at least 0, is that of Student's t, and is returned unchanged where the skewness is not positive. With
    x = quantile + a / 6, the result is x + a x^2 / 3 + 5 a^2 x^3 / 27: the inverse of Hall's cubic transformation
    (1992) to second order in a. The exact inverse is not used, because the cubic is flat near ratios of -3 / a: if ten
    of 12 values are 1 and two are 0, it would not reject a mean of 0, which is 7.4 standard errors away.
    """
    tail = np.maximum(skewness, 0.0)
    x = quantile + tail / 6
    return np.asarray(x + tail * x**2 / 3 + 5 * tail**2 * x**3 / 27)


def unskewed_quantile(ratio: FloatArray, skewness: FloatArray) -> FloatArray:
    """Return the inverse of `skewed_quantile` at `ratio`, at least 0; 0 if the ratio is below all its values."""
    tail = np.maximum(skewness, 0.0)
    steep = tail * ratio
    by_series = ratio * (1 - steep / 3 + steep**2 / 27)
    # u = a x is the only real root of 5 u^3 + 9 u^2 + 27 u = 27 a ratio.
    by_root = (2.4 * np.sinh(np.arcsinh((13 + 25 * steep) / 16) / 3) - 0.6) / np.where(tail > 0, tail, 1.0)
    return np.maximum(np.where(steep < CLOSE, by_series, by_root) - tail / 6, 0.0)


def skewed_t_interval(
    centre: float, error: float, skewness: float, *, df: float, confidence_level: float
) -> tuple[float, float]:
    """Return the two-sided interval of a mean, or of a difference of two means (Zhou & Dinh 2005), in their unit.

    `centre` is the estimate, `error` its standard error, `skewness` that of `skewness_of_mean`.
    """
    below, above = skewed_quantile(np.array(t_quantile(confidence_level, df)), np.array([-skewness, skewness])).tolist()
    return centre - below * error, centre + above * error


def skewed_t_p_value(centre: float, error: float, skewness: float, *, df: float) -> float:
    """Return the two-sided p-value of a true value of 0: 1 minus the level at which `skewed_t_interval` ends at 0."""
    towards = -skewness if centre > 0 else skewness
    return t_p_value(float(unskewed_quantile(np.array(abs(centre) / error), np.array(towards))), 1.0, df=df)
