"""What one long tail does to Student's t, and an interval and a p that allow for it.

The ratio of a mean's error to its estimated standard error leans away from the tail, to first order by
a (1 + 2 t^2) / 6, where a is the skewness of the mean (Hall 1992). Here the interval by t reaches further on the side
of the tail, and no less far on the other. By simulation (20,000 runs of 30 log-normal numbers, log-sd 1) 95 % by t
cover the mean in 90.3 %, nearly all misses on the side of the tail; so corrected they cover in 94.3 % and are 22 %
wider. Without skew there is little to lose: of 30 normal numbers the interval is 3 % wider and tests at 5 % err in
4.3 %; of 100, 0.7 % and 4.8 %.
"""

import numpy as np

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering
from evalflows.stats.distributions import t_p_value, t_quantile

CORRECTED = "skew-corrected t"
"""What the method is called."""

CLOSE = 1e-4
"""Where the inverse by its series is as close as rounding."""


def skewness_of_mean(values: FloatArray, clustering: Clustering, error: float) -> float:
    """How skewed the mean of `values`, shape (n,), is, `error` being its standard error and not 0.

    G1 / sqrt(n), with the adjusted skewness G1 of a sample (Joanes & Gill 1998); where there are clusters, that of what
    the mean is the sum of: each cluster's deviations from it. 0.0 of two, which are always even.
    """
    sums = np.bincount(clustering.numbers, weights=values - values.mean(), minlength=clustering.count)
    return float(skewnesses_of_mean(sums[None].astype(np.float64), values.size, np.array([error]))[0])


def skewnesses_of_mean(sums: FloatArray, n: int, errors: FloatArray) -> FloatArray:
    """The same of each of R means of n values: by the deviations of clusters, shape (R, G), and the errors, (R,)."""
    count = sums.shape[1]
    if count < 3:
        return np.zeros(len(sums))
    parts = sums / (n * errors)[:, None]
    return np.asarray((parts**3).sum(axis=1) * count**2 / ((count - 1) * (count - 2)))


def stretched(quantile: FloatArray, skewness: FloatArray) -> FloatArray:
    """How many standard errors an interval reaches, of whose ratio `quantile` is that of t, on the side to which that
    skewness is positive; as many as `quantile` where it is not.

    With x = quantile + a / 6: x + a x^2 / 3 + 5 a^2 x^3 / 27, the inverse of Hall's cubic transformation (1992) to the
    second power of a. Not the inverse itself: his cubic is flat near ratios of -3 / a, so that where ten of 12 are 1
    and two are 0, even a mean of 0 would be no surprise, 7.4 standard errors away.
    """
    tail = np.maximum(skewness, 0.0)
    x = quantile + tail / 6
    return np.asarray(x + tail * x**2 / 3 + 5 * tail**2 * x**3 / 27)


def shrunk(ratio: FloatArray, skewness: FloatArray) -> FloatArray:
    """The quantile, 0 at least, that is stretched to that ratio, 0 or more."""
    tail = np.maximum(skewness, 0.0)
    steep = tail * ratio
    by_series = ratio * (1 - steep / 3 + steep**2 / 27)
    # u = a x is the only real root of 5 u^3 + 9 u^2 + 27 u = 27 a ratio.
    by_root = (2.4 * np.sinh(np.arcsinh((13 + 25 * steep) / 16) / 3) - 0.6) / np.where(tail > 0, tail, 1.0)
    return np.maximum(np.where(steep < CLOSE, by_series, by_root) - tail / 6, 0.0)


def skewed_t_interval(
    centre: float, error: float, skewness: float, *, df: float, confidence_level: float
) -> tuple[float, float]:
    """The interval of a mean, or of the difference of two means (Zhou & Dinh 2005), with that skewness."""
    below, above = stretched(np.array(t_quantile(confidence_level, df)), np.array([-skewness, skewness])).tolist()
    return centre - below * error, centre + above * error


def skewed_t_p_value(centre: float, error: float, skewness: float, *, df: float) -> float:
    """The two-sided p that `centre` estimates 0: one minus the level at which that interval ends at 0."""
    towards = -skewness if centre > 0 else skewness
    return t_p_value(float(shrunk(np.array(abs(centre) / error), np.array(towards))), 1.0, df=df)
