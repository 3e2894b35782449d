"""Length-controlled win rate: the rate at which a candidate would win at equal answer length."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, refuse_where, vector_of_size
from evalflows.stats.clusters import Clustering, clustering_of, is_rounding, too_few
from evalflows.stats.distributions import t_interval
from evalflows.stats.preferences.logistic import information, logistic_fit, probability

MIN_CLUSTERS = 10
"""With fewer clusters, the cluster-robust standard error of a regression is too small too often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """A win rate at equal length, 0 to 1."""

    rate: float | None  # None with a reason
    low: float | None  # None with a reason, like `high`
    high: float | None
    confidence_level: float  # the confidence level, 0 to 1
    method: str  # of the regression; of the intervals
    n: int  # comparisons
    n_clusters: int | None  # None without clusters
    reason: str | None  # why the rate or its interval is missing; None if both are present


class _Fit(NamedTuple):
    coefficients: FloatArray  # log-odds of a win at equal length; then of length and of order, if they vary
    errors: FloatArray | None
    reason: str | None


def length_controlled(
    points: ArrayLike,
    longer_by: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    order: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> LengthControlled:
    """Return a candidate's win rate at equal length of both answers, with a two-sided interval within 0 to 1.

    `points`, shape (n,), 0 to 1, are the candidate's, and `longer_by`, shape (n,), says how much longer its answer was,
    in any unit. `order`, shape (n,), is 1 if it was shown first, -1 if second, 0 if both orders were averaged; if it
    varies, the rate is the one at order 0. The points are regressed (fractional logit: Papke & Wooldridge 1996) on a
    constant, tanh(longer_by / its standard deviation) (Dubois et al. 2024) and the order; the rate is the constant's.

    Each coefficient has a log-F(1, 1) prior, that is half a win and half a loss that it alone explains (Greenland &
    Mansournia 2015), and so stays finite if the points are all 0, all 1, or fully determined by the length. Standard
    errors are cluster-robust (CR1: Cameron & Miller 2015), with each half win and loss as one more cluster; intervals
    are t with G - 1 degrees of freedom, in log-odds. They are somewhat too short with fewer than about 20 clusters of
    unequal sizes, or if almost all comparisons are won or lost.

    If both answers always have equal length, there is nothing to control for: the rate is the plain one, with the half
    win and loss. There is no interval with fewer than 10 clusters (without clusters, comparisons) or without spread.
    There is no rate without comparisons, if the difference in length is constant or always on one side, or if length
    and order are collinear.

    Raise ValueError for points outside 0 to 1, an order other than -1, 0 and 1, nan or inf, lengths or shapes that do
    not fit, a nan among the clusters, and a level not between 0 and 1.
    """
    confidence_level, won = checked_confidence_level(confidence_level), finite_vector("points", points)
    refuse_where("points", won, (won < 0) | (won > 1), "0 to 1")
    longer, shown = vector_of_size("longer_by", longer_by, won.size), _order(order, won.size)
    clustering = clustering_of(clusters, won.size)
    design, why_not = _design(longer, shown)
    fit = None if why_not else _fit(design, won, clustering)
    rate = _interval(fit, clustering.count - 1, confidence_level)
    return LengthControlled(
        rate=_rate(rate[0]),
        low=_rate(rate[1]),
        high=_rate(rate[2]),
        confidence_level=confidence_level,
        method=f"logistic on {'length and order' if shown is not None else 'length'}; cluster-robust t",
        n=won.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=fit.reason if fit else why_not,
    )


def _order(order: ArrayLike | None, n: int) -> FloatArray | None:
    """Return the checked order; None if it does not vary."""
    if order is None:
        return None
    shown = vector_of_size("order", order, n)
    refuse_where("order", shown, ~np.isin(shown, (-1.0, 0.0, 1.0)), "1, -1 or 0")
    return shown if shown.size and np.ptp(shown) else None


def _design(longer: FloatArray, shown: FloatArray | None) -> tuple[FloatArray, str | None]:
    """Return the design matrix, shape (n, 1 to 3), and why it cannot be used, or None."""
    columns = [np.ones(longer.size)]
    if not longer.size:
        return columns[0][:, None], "no comparisons: a rate needs at least 1"
    if longer.any():
        scale = float(np.abs(longer).max())
        if is_rounding(np.ptp(longer), scale):
            return columns[0][:, None], f"all length differences are {longer[0]:g}: their effect cannot be estimated"
        if longer.min() > 0 or longer.max() < 0:
            return columns[0][:, None], "the same side is always longer: the rate at equal length cannot be estimated"
        columns.append(np.tanh(longer / scale / (longer / scale).std(ddof=1)))
    if shown is not None:
        columns.append(shown)
    design = np.column_stack(columns)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return design, "length and order always go together: their effects cannot be separated"
    return design, None


def _fit(design: FloatArray, won: FloatArray, clustering: Clustering) -> _Fit:
    terms = np.eye(design.shape[1])
    augmented, halves = np.vstack([design, terms]), np.full(len(terms), 0.5)
    wins, losses = np.concatenate([won, halves]), np.concatenate([1.0 - won, halves])
    fit = logistic_fit(augmented, wins, losses)
    if fit is None:
        return _Fit(np.full(len(terms), math.nan), None, "the likelihood maximisation did not converge")
    if few := _too_few(won.size, clustering):
        return _Fit(fit, None, few)
    bread = np.asarray(np.linalg.inv(information(augmented, fit, wins + losses)), dtype=np.float64)
    scores = augmented * (wins - (wins + losses) * probability(augmented @ fit))[:, None]
    errors = _sandwich(bread, scores, len(terms), clustering)
    if is_rounding(errors[0], 1.0):
        same = f"the points of all {clustering.count} clusters are fitted exactly"
        return _Fit(fit, None, f"{same}: no spread to compute an interval from")
    return _Fit(fit, errors, None)


def _too_few(n: int, clustering: Clustering) -> str | None:
    if few := too_few(n, clustering, "comparison"):
        return few
    if clustering.count < MIN_CLUSTERS:
        noun = "comparisons" if clustering.all_singletons else "clusters"
        return f"{clustering.count} {noun}: an interval needs at least {MIN_CLUSTERS}"
    return None


def _sandwich(bread: FloatArray, scores: FloatArray, terms: int, clustering: Clustering) -> FloatArray:
    """Return the standard errors, shape (terms,). The last rows of `scores`, one per term, belong to the prior."""
    n, count = clustering.numbers.size, clustering.count
    cluster_scores = np.zeros((count, terms))
    np.add.at(cluster_scores, clustering.numbers, scores[:n])
    correction = count / (count - 1) * (n - 1) / (n - terms)
    meat = correction * cluster_scores.T @ cluster_scores + scores[n:].T @ scores[n:]
    return np.asarray(np.sqrt(np.diag(bread @ meat @ bread)), dtype=np.float64)


def _interval(fit: _Fit | None, df: int, confidence_level: float) -> tuple[float | None, float | None, float | None]:
    """Return the constant of the regression and the ends of its interval, in log-odds."""
    if fit is None or math.isnan(fit.coefficients[0]):
        return None, None, None
    centre = float(fit.coefficients[0])
    if fit.errors is None:
        return centre, None, None
    return centre, *t_interval(centre, float(fit.errors[0]), df=df, confidence_level=confidence_level)


def _rate(log_odds: float | None) -> float | None:
    return None if log_odds is None else float(probability(np.asarray(log_odds)))
