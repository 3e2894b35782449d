"""Bounds of a mean of values in a known range, which allow for rare values that a sample did not show.

No estimate from a sample knows of rare values that were not drawn: 30 scores near 1 look alike whether one in a hundred
is 0 or none. The bound of Gaffke (2005) takes the worst possible value as one more observation, weighs all
observations by a flat Dirichlet distribution, and is a quantile of the weighted mean. For values that are only the ends
of the range it is the bound of Clopper & Pearson (1934), for equal ones that of auditors for samples without an error
(Stringer 1963; Fienberg, Neter & Leitch 1977), and for many values that vary it is close to that of Student's t. That
it holds for all distributions is proven for variants of it (Learned-Miller & Thomas 2020; Phan, Thomas & Learned-Miller
2021), and was simulated (docs/explanation/simulation.md).

The quantile is that of a ratio of sums of weighted gamma variables, by the saddlepoint approximation (Lugannani & Rice
1980). It is off by less than 0.0005 of the range from 25 values on, and by at most 0.0025 with 5, always towards the
worst value.
"""

import math
from typing import NamedTuple

import numpy as np

from evalflows.stats.arrays import FloatArray
from evalflows.stats.clusters import Clustering, cluster_sums
from evalflows.stats.proportions import special_functions

GAFFKE = "gaffke"
"""Name of the method in results."""

MOST_POINTS = 1024
"""So many points stand for more values: the means of as many neighbours each."""

BLOCK_SIZE = 1 << 15
"""Numbers that are worked on at once: as many as a processor holds close by."""

CLOSE = 1e-3
"""Standard deviations from the mean below which the formula is replaced by its limit."""

TOLERANCE = 1e-9
"""Of a quantile of the normal distribution."""


class _Points(NamedTuple):
    """The observations of R rows, and how many observations each stands for; the last one is the worst value."""

    values: FloatArray  # shape (R, m)
    counts: FloatArray  # shape (m,)
    lowest: FloatArray  # of each row
    width: FloatArray  # of each row, from its lowest to its highest value
    total: np.float64  # of the counts

    @classmethod
    def of(cls, values: FloatArray, counts: FloatArray) -> "_Points":
        lowest = values.min(axis=1)
        return cls(values, counts, lowest, values.max(axis=1) - lowest, counts.sum())

    def quantiles(self, nearness: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the normal quantiles of the probability that the weighted mean is below some bounds, and the bounds.

        `nearness`, above 0, shape (R,), is that of the saddlepoint to the lowest value: towards 0 the bound is the
        mean of the observations, towards infinity the lowest one. The bound is explicit in it, so that no equation is
        solved for each.
        """
        pole = self.lowest - self.width / nearness
        above = self.values - pole[:, None]
        height = self.total / (self.counts / above).sum(axis=1)
        ratios = above / height[:, None]
        root = -np.sqrt(np.maximum(2 * (self.counts * np.log(ratios)).sum(axis=1), 0.0))
        slope = -np.sqrt((self.counts * (1 - 1 / ratios) ** 2).sum(axis=1))
        is_close = root > -CLOSE
        root, slope = np.where(is_close, -CLOSE, root), np.where(is_close, -CLOSE, slope)
        share = special_functions().ndtr(root) + np.exp(-(root**2) / 2) / math.sqrt(2 * math.pi) * (
            1 / root - 1 / slope
        )
        found = np.asarray(special_functions().ndtri(np.clip(share, 1e-300, 1.0)))
        return np.where(is_close, self.quantile_at_mean, found) if is_close.any() else found, pole + height

    @property
    def means(self) -> FloatArray:
        return np.asarray((self.counts * self.values).sum(axis=1) / self.counts.sum())

    @property
    def quantile_at_mean(self) -> FloatArray:
        """The normal quantiles of the probability that the weighted mean is below the mean: a sixth of its skewness."""
        parts = self.values - self.means[:, None]
        second, third = ((self.counts * parts**power).sum(axis=1) for power in (2, 3))
        return np.asarray(third / (3 * second**1.5))


def bounded_intervals(
    rows: FloatArray,
    clustering: Clustering,
    lowest: FloatArray,
    highest: FloatArray,
    *,
    confidence_level: float,
    times: float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Return the two-sided intervals of the means of `rows`, shape (R, n), each end at half of the level.

    `lowest` and `highest`, shape (R,), are the ends of what a value can be. Clusters count as one observation each, at
    what they add to the mean; the cluster that was not drawn is of average size. With `times`, the intervals are those
    of so many times as many values, or clusters, like these.
    """
    if not clustering.all_singletons:
        means, n = rows.mean(axis=1)[:, None], rows.shape[1]
        parts = cluster_sums(rows - means, clustering)
        rows = means + clustering.count * parts / n
    alpha = (1 - confidence_level) / 2
    return lower_bounds(rows, lowest, alpha, times=times), -lower_bounds(-rows, -highest, alpha, times=times)


def lower_bounds(values: FloatArray, worst: FloatArray, alpha: float, *, times: float = 1.0) -> FloatArray:
    """Return lower confidence bounds of the means of R rows of `values`, shape (R, n), in their unit.

    The true mean is below the bound in at most a share `alpha`, at most 0.5, of the samples. `worst`, shape (R,), is
    the lowest possible value. With `times`, the bounds are those of so many times as many values like these.
    """
    n = values.shape[1] * times
    bounds = np.asarray(worst + (values[:, 0] - worst) * alpha ** (1 / n))  # exact where all values are equal
    (varying,) = np.nonzero(np.ptp(values, axis=1) > 0)
    size = max(1, BLOCK_SIZE // values.shape[1])
    for rows in (varying[start : start + size] for start in range(0, len(varying), size)):
        sample = _grouped(values[rows])
        counts = np.append(np.full(sample.shape[1], n / sample.shape[1]), 1.0)
        points = _Points.of(np.column_stack([sample, worst[rows]]), counts)
        bounds[rows] = _solved(points, float(special_functions().ndtri(alpha)))
    return bounds


def _grouped(values: FloatArray) -> FloatArray:
    """Return at most MOST_POINTS points for each row, which stand for as many values each."""
    n = values.shape[1]
    if n <= MOST_POINTS:
        return values
    starts = np.linspace(0, n, MOST_POINTS, endpoint=False).astype(np.intp)
    sums = np.add.reduceat(np.sort(values, axis=1), starts, axis=1)
    return np.asarray(sums / np.diff(np.append(starts, n)))


def _solved(points: _Points, wanted: float) -> FloatArray:
    """Return the bounds at a normal quantile, by regula falsi (Illinois); those above the mean are the mean."""
    low, at_low = np.zeros(len(points.values)), points.quantile_at_mean
    is_mean = at_low <= wanted + TOLERANCE  # nearer to the mean, rounding is all that a bound would consist of
    spread = np.ptp(points.values, axis=1) / np.maximum(points.values.std(axis=1), 1e-300)
    high = -min(wanted, -0.01) * spread / math.sqrt(points.counts.sum())
    at_high, found = points.quantiles(high)
    while (is_short := (at_high > wanted) & ~is_mean).any():
        low, at_low = np.where(is_short, high, low), np.where(is_short, at_high, at_low)
        high = np.where(is_short, 2 * high, high)
        at_high, found = points.quantiles(high)
    lower, upper = np.where(is_mean, 1.0, at_low - wanted), at_high - wanted
    for _ in range(100):
        middle = high - upper * (high - low) / np.where(upper == lower, -1.0, upper - lower)
        at_middle, found = points.quantiles(middle)
        rest = at_middle - wanted
        if (is_mean | (np.abs(rest) < TOLERANCE)).all():
            break
        is_same = (rest < 0) == (upper < 0)
        lower = np.where(is_same, lower / 2, upper)
        low = np.where(is_same, low, high)
        high, upper = middle, rest
    return np.where(is_mean, points.means, found)
