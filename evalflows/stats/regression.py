"""Figures of numeric answers from all of them together: errors, correlations, and the explained share of variance."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from evalflows.stats.arrays import ROUNDING, FloatArray

RegressionFigure = Literal["mae", "rmse", "bias", "pearson", "spearman", "r2"]

BOUNDS: dict[RegressionFigure, tuple[float, float]] = {
    "mae": (0.0, np.inf),
    "rmse": (0.0, np.inf),
    "bias": (-np.inf, np.inf),
    "pearson": (-1.0, 1.0),
    "spearman": (-1.0, 1.0),
    "r2": (-np.inf, 1.0),
}
"""The lowest and the highest possible value of each figure."""


class Regression:
    """Figures of n answers from the numbers `expected` and `got`, both of shape (n,).

    Called with weights, shape (r, n), it returns the figures, shape (r, M).
    """

    def __init__(
        self, expected: FloatArray, got: FloatArray, figures: Sequence[RegressionFigure] = get_args(RegressionFigure)
    ) -> None:
        self.figures = tuple(figures)
        self._error = got - expected
        self._expected, self._got = expected - expected.mean(), got - got.mean()
        self._ranks = (_MidRanks(expected), _MidRanks(got)) if "spearman" in figures else None

    def __call__(self, weights: FloatArray) -> FloatArray:
        total = weights.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.column_stack([self._figure(figure, weights, total) for figure in self.figures])

    def _figure(self, figure: RegressionFigure, weights: FloatArray, total: FloatArray) -> FloatArray:
        if figure == "mae":
            return weights @ np.abs(self._error) / total
        if figure == "bias":
            return weights @ self._error / total
        if figure == "rmse":
            return np.sqrt(weights @ self._error**2 / total)
        if figure == "r2":  # 1 - (mean squared error) / (variance of what was expected)
            return 1 - weights @ self._error**2 / total / _variance(self._expected, weights, total)
        if self._ranks is not None and figure == "spearman":  # (Spearman 1904): Pearson's of the midranks
            (first, of_first), (second, of_second) = (ranks(weights) for ranks in self._ranks)
            spread = np.sqrt(of_first * of_second)
            return np.where(spread > 0, np.einsum("ij,ij,ij->i", weights, first, second) / spread, np.nan)
        means = weights @ self._expected / total, weights @ self._got / total
        covariance = weights @ (self._expected * self._got) / total - means[0] * means[1]
        spread = _variance(self._expected, weights, total) * _variance(self._got, weights, total)
        return np.asarray((covariance / np.sqrt(spread)).clip(-1.0, 1.0))


def _variance(values: FloatArray, weights: FloatArray, total: FloatArray) -> FloatArray:
    """Return the weighted variances; NaN for those that are only rounding."""
    squares = weights @ values**2 / total
    variance = squares - (weights @ values / total) ** 2
    return np.where(variance > ROUNDING * squares, variance, np.nan)


class _MidRanks:
    """Ranks of n numbers, each as often as it is weighed; equal ones have the mean of their ranks."""

    def __init__(self, values: FloatArray) -> None:
        self._order = np.argsort(values, kind="stable")
        _, self._starts = np.unique(values[self._order], return_index=True)
        self._places = np.unique(values, return_inverse=True)[1]

    def __call__(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the ranks minus their mean, shape (r, n), and the sums of their squares, shape (r,)."""
        counts = np.add.reduceat(weights.take(self._order, axis=1), self._starts, axis=1)
        ends = counts.cumsum(axis=1)
        ranks = ends - (counts + ends[:, -1:]) / 2
        return ranks.take(self._places, axis=1), np.einsum("ij,ij,ij->i", counts, ranks, ranks)
