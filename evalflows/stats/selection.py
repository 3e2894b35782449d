"""The best of many variants on the same examples: which ones cannot be told from it, and what is left of the winner's
figures once they are corrected for its having been chosen.

The set is Hsu's multiple comparisons with the best (Hsu 1984, Annals of Statistics 12; unequal variances as in Edwards
and Hsu 1983, JASA 78): a variant stays in it unless another one is better by more than the quantile of the largest
error of its own differences. The winner's figures are the hybrid estimates of Andrews, Kitagawa and McCloskey
(Inference on Winners, 2024, Quarterly Journal of Economics 139): given which variant won, and what of the others does
not depend on the winner's figure, that figure is a truncated normal, whose mean is estimated without median bias; the
truth is also taken to be within the simultaneous intervals of all variants, of a tenth of the error rate.

Both rest on approximately normal means, with a covariance estimated from the examples or clusters. Of yes/no values the
interval of the winner's mean is joined with Wilson's, adjusted for the number of variants.

Values may be missing for reasons that depend on them. So each variant is held against the worst case of the others: it
stays in the set if it could be the best with its own missing values at their best, and all others' at their worst.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray, checked_confidence_level, is_rounding
from evalflows.stats.clusters import Clustering, cluster_sums, clustering_of, few_clusters
from evalflows.stats.means import effective_size
from evalflows.stats.proportions import normal_quantile, score_interval, special_functions

DRAWS = 10_000
"""Draws of the means' errors, from which quantiles of their maxima are taken."""

LEAST = 20
"""Examples, or clusters, that the normal approximation needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnersFigure:
    """A figure of the variant with the highest mean, as it is and corrected for having been chosen."""

    naive: float
    corrected: float | None  # without median bias; None if there is a reason
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The best of K variants."""

    n: int
    n_clusters: int | None  # None without clusters
    means: FloatArray  # shape (K,), in the worst case of the missing values
    winner: int  # by these
    contenders: tuple[int, ...]  # that cannot be told from the best, the winner included; empty if there is a reason
    mean: WinnersFigure  # in the worst case
    gain: WinnersFigure | None  # over the baseline's best case; None without one, if it won, or if that is ahead
    confidence_level: float
    seed: int
    method: str
    reason: str | None  # why nothing but the means is known
    warning: str | None


def select_best(
    values: ArrayLike,
    best_case: ArrayLike | None = None,
    *,
    baseline: int | None = None,
    clusters: Sequence[Hashable] | None = None,
    confidence_level: float = 0.95,
    seed: int = 0,
) -> Selection:
    """Return the variant with the highest mean, and what can be said of it.

    Args:
        values: Shape (n, K): each example's value of each variant, higher is better; missing ones at their worst.
            None may be nan.
        best_case: The same with missing values at their best. Default: none is missing.
        baseline: The column that the winner's gain is measured from.
        clusters: Shape (n,): the cluster of each example; None, or None in it: a cluster of its own.
        confidence_level: Of the set of contenders, and of each interval.
        seed: Of the draws.

    Raise ValueError for other shapes, fewer than two variants, or values that are not finite.
    """
    rows, level = np.asarray(values, dtype=np.float64), checked_confidence_level(confidence_level)
    highest = rows if best_case is None else np.asarray(best_case, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 2 or not len(rows) or not np.isfinite(rows).all():
        raise ValueError(f"values: got shape {rows.shape}, wanted finite ones of shape (n, K), K at least 2")
    if highest.shape != rows.shape or not np.isfinite(highest).all():
        raise ValueError(f"best_case: got shape {highest.shape}, wanted finite ones of shape {rows.shape}")
    clustering = clustering_of(clusters, len(rows))
    means = rows.mean(axis=0)
    winner, columns = int(np.argmax(means)), np.arange(len(means))
    known: dict[str, Any] = {
        "n": len(rows),
        "n_clusters": None if clusters is None else clustering.count,
        "means": means,
    }
    how: dict[str, Any] = {
        "confidence_level": level,
        "seed": seed,
        "warning": few_clusters(clustering),
        "winner": winner,
    }
    gained = None
    if baseline not in (None, winner):
        with_baseline = np.where(columns == baseline, highest.mean(axis=0), means)
        if int(np.argmax(with_baseline)) == winner:
            gained = float(means[winner] - with_baseline[baseline])
    if clustering.count < LEAST:
        unit = "examples" if clusters is None else "clusters"
        return Selection(
            **known,
            **how,
            contenders=(),
            mean=_unknown(float(means[winner])),
            gain=None if gained is None else _unknown(gained),
            method="none",
            reason=f"{clustering.count} {unit}: the best cannot be told from fewer than {LEAST}",
        )
    worst = _figures(rows, clustering, level, seed)

    def in_best_case_of(variant: int) -> _Figures:
        if (highest[:, variant] == rows[:, variant]).all():
            return worst
        return _figures(np.where(columns == variant, highest, rows), clustering, level, seed)

    weights, gain = np.eye(len(means)), None
    if baseline is not None and gained is not None:
        gain = in_best_case_of(baseline).of(winner, weights - weights[baseline])
    return Selection(
        **known,
        **how,
        contenders=tuple(one for one in range(len(means)) if not in_best_case_of(one).is_beaten(one)),
        mean=_of_shares(worst.of(winner, weights), rows, winner, clustering, level),
        gain=gain,
        method="multiple comparisons with the best; hybrid estimates of the winner",
        reason=None,
    )


def _of_shares(
    figure: WinnersFigure, rows: FloatArray, winner: int, clustering: Clustering, level: float
) -> WinnersFigure:
    """Return the winner's mean with an interval that also holds near the end of what two values allow.

    There the errors are not normal: few answers are wrong, or none, which shows no error at all. So the interval is
    joined with Wilson's (1927), whose lower end is adjusted for all variants (Bonferroni). If all of the winner's
    answers are right, the estimate is the share at which the best of as many variants, if all were as good, has no
    wrong answer in half of the samples.
    """
    ends, variants = np.unique(rows), rows.shape[1]
    if len(ends) != 2:
        return figure
    right = (rows[:, winner] == ends[1]).astype(np.float64)
    share = float(right.mean())
    size = effective_size(right, clustering) if 0 < share < 1 else float(clustering.count)
    lowest = score_interval(share, size, normal_quantile(1 - (1 - level) / variants))[0]
    highest = score_interval(share, size, normal_quantile(level))[1]
    low, high = (float(ends[0] + (ends[1] - ends[0]) * bound) for bound in (lowest, highest))
    if figure.corrected is None or figure.low is None or figure.high is None:
        if share < 1:
            return figure
        corrected = (1 - 0.5 ** (1 / variants)) ** (1 / clustering.count)
        return replace(figure, corrected=float(ends[0] + (ends[1] - ends[0]) * corrected), low=low, high=high)
    return replace(figure, low=min(low, figure.low), high=max(high, figure.high))


def _step(rows: FloatArray) -> float:
    """Return the least difference of two means that differ, for values on a grid."""
    gaps = np.diff(np.unique(rows))
    return float(gaps.min(initial=np.inf) / len(rows)) if len(gaps) else 0.0


def _unknown(naive: float) -> WinnersFigure:
    return WinnersFigure(naive=naive, corrected=None, low=None, high=None)


def _errors(covariance: FloatArray, df: int, rng: np.random.Generator) -> FloatArray:
    """Draw errors of the means, shape (K, DRAWS): multivariate t, since the covariance is estimated."""
    size, axes = np.linalg.eigh(covariance)
    normal = rng.standard_normal((DRAWS, len(size))) * np.sqrt(np.maximum(size, 0.0)) @ axes.T
    drawn: FloatArray = normal / np.sqrt(rng.chisquare(df, DRAWS) / df)[:, None]
    return np.ascontiguousarray(drawn.T)  # those of each variant together


def _figures(rows: FloatArray, clustering: Clustering, level: float, seed: int) -> "_Figures":
    means = rows.mean(axis=0)
    sums = cluster_sums((rows - means).T, clustering)
    covariance = sums @ sums.T * clustering.count / ((clustering.count - 1) * len(rows) ** 2)
    return _Figures(
        means=means,
        covariance=covariance,
        errors=_errors(covariance, clustering.count - 1, np.random.default_rng(seed)),
        level=level,
        scale=float(np.abs(rows).max(initial=0.0)),
        step=_step(rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    means: FloatArray
    covariance: FloatArray
    errors: FloatArray
    level: float
    scale: float
    step: float  # between means that are possible, by which leads of yes/no metrics are too round

    def is_beaten(self, variant: int) -> bool:
        """Return whether another variant beats this one by more than chance explains, if all were as good.

        Where all differences of two variants are equal, the one with the lower mean is beaten. A lead counts less by a
        `step`, as in McNemar's corrected test: of yes/no metrics, four examples to none are no sure lead.
        """
        variances, errors = np.diag(self.covariance), self.errors
        sure = min(1.0, self.level + 2 * np.sqrt(self.level * (1 - self.level) / DRAWS))  # the draws' may be too low
        spread = np.sqrt(np.maximum(0.0, variances + variances[variant] - 2 * self.covariance[variant]))
        varies, ahead = spread > 1e-9 * self.scale, self.means - self.means[variant]
        if (ahead[~varies] > 1e-9 * self.scale).any():
            return True
        if not varies.any():
            return False
        largest = ((errors[varies] - errors[variant]) / spread[varies, None]).max(axis=0)
        return bool(((ahead[varies] - self.step) / spread[varies]).max() > np.quantile(largest, sure))

    def of(self, winner: int, weights: FloatArray) -> WinnersFigure:
        """Return the winner's figure, where the figure of each variant is a row of weights, shape (K, K), of the
        means."""
        naive = float(weights[winner] @ self.means)
        with_means = self.covariance @ weights[winner]
        variance = float(weights[winner] @ with_means)
        if is_rounding(np.sqrt(max(0.0, variance)), self.scale):
            return _unknown(naive)
        error = float(np.sqrt(variance))
        low, high = self._bounds(winner, naive, with_means / variance)
        least = (1 - self.level) / 10
        reach = error * self._simultaneous(weights, 1 - least)
        rest = 1 - (1 - self.level - least) / (1 - least)

        def at(probability: float) -> float:
            return _mean_at(probability, naive, error, low, high, reach)

        return WinnersFigure(naive=naive, corrected=at(0.5), low=at((1 + rest) / 2), high=at((1 - rest) / 2))

    def _bounds(self, winner: int, naive: float, slopes: FloatArray) -> tuple[float, float]:
        """Return between which values the figure had to be for this variant to win, given the rest of the data.

        `slopes`, shape (K,), say how each mean moves with the figure.
        """
        is_later = np.arange(len(self.means)) > winner  # those need not be beaten, but equalled
        lead = self.means[winner] - self.means + np.where(is_later, self.step / 2, -self.step / 2)
        slope = slopes[winner] - slopes
        ends = naive - np.divide(lead, slope, out=np.zeros_like(lead), where=np.abs(slope) > 1e-9)
        low = ends[slope > 1e-9].max(initial=-np.inf)
        return float(low), float(ends[slope < -1e-9].min(initial=np.inf))

    def _simultaneous(self, weights: FloatArray, level: float) -> float:
        """Return the quantile of the largest error of all variants' figures, in standard errors."""
        spread = np.sqrt(np.maximum(0.0, np.einsum("ij,jk,ik->i", weights, self.covariance, weights)))
        varies = spread > 1e-9 * self.scale
        return float(np.quantile(np.abs(weights[varies] @ self.errors / spread[varies, None]).max(axis=0), level))


def _mean_at(probability: float, naive: float, error: float, low: float, high: float, reach: float) -> float:
    """Return the mean of a normal distribution, truncated to its own reach and to (low, high), of which `naive` is the
    quantile of this probability."""
    from scipy.optimize import brentq  # type: ignore[import-untyped, unused-ignore]  # late: it takes 0.2 s to load

    def excess(mean: float) -> float:
        first, last = max(low, mean - reach), min(high, mean + reach)
        below, value, above = special_functions().ndtr((np.array([first, naive, last]) - mean) / error)
        return float((value - below) / (above - below) - probability)

    ends = naive - reach * (1 - 1e-9), naive + reach * (1 - 1e-9)
    if excess(ends[0]) <= 0:  # it just won: nothing tells how little of the lead is real, but its reach
        return naive - reach
    if excess(ends[1]) >= 0:
        return naive + reach
    return float(brentq(excess, *ends, xtol=1e-9 * error))
