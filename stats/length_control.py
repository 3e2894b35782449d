"""How often a candidate wins, had its answers been as long as those it was compared with."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, checked_level, finite_vector, refuse_where
from stats.clusters import Clustering, clustering_of, is_rounding, too_few
from stats.distributions import t_interval
from stats.logistic import information, logistic_fits, probability

FEWEST_CLUSTERS = 10
"""With fewer, a standard error that is reckoned from clusters is too small too often for a regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthControlled:
    """A win rate at equal length, 0 to 1, and what length does, in log-odds."""

    rate: float | None  # None with a reason
    low: float | None  # None with a reason, as is `high`
    high: float | None
    length_effect: float | None  # log-odds per unit of tanh(longer_by / sd); None with a `length_reason`
    length_low: float | None
    length_high: float | None
    level: float  # how often such intervals cover the true rate, or effect, 0 to 1
    method: str  # what the regression is on, and what the intervals are
    n: int  # comparisons
    n_clusters: int | None  # None where no clusters were given
    reason: str | None  # why there is no rate, or no interval for it; None if there are both
    length_reason: str | None  # the same of the effect


class _Fit(NamedTuple):
    coefficients: FloatArray  # log-odds: of a win at equal length; of length, unless none differs; of order, if given
    errors: FloatArray | None
    reason: str | None


def length_controlled(
    points: ArrayLike,
    longer_by: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    order: ArrayLike | None = None,
    level: float = 0.95,
) -> LengthControlled:
    """The rate at which a candidate wins at equal length of both answers, with a two-sided interval within 0 to 1.

    `points`, shape (n,), 0 to 1, are what the candidate got, `longer_by`, shape (n,), by how much its answer was longer
    (in any unit). `order`, shape (n,), says how it was shown: 1 first, -1 second, 0 both and averaged; where it varies
    the rate is that at 0. A logistic regression of the points (Papke & Wooldridge 1996) on a constant,
    tanh(longer_by / its standard deviation) (Dubois et al. 2024) and the order; the rate is that of the constant.

    Each coefficient is held by half a win and half a loss that it alone would explain, that is by the prior
    log-F(1, 1) (Greenland & Mansournia 2015), and is finite therefore where points are all 0, all 1, or go with the
    length without exception. Standard errors are those of the sandwich over clusters (CR1: Cameron & Miller 2015),
    to which each half win and loss is one more cluster, intervals t with G - 1 degrees of freedom in log-odds. With
    fewer than some 20 clusters of unlike sizes, or where almost all is won or lost, they are somewhat too short.

    Where both answers are always of equal length there is nothing to control for, and the rate is the plain one, with
    the half win and loss. No interval with fewer than 10 clusters (each comparison is one where none are given) or
    without spread. No rate without comparisons; where the length differs always by the same; and where length and
    order cannot be told apart.

    Raises ValueError for points outside 0 to 1, an order other than -1, 0 and 1, a nan or inf, sides or clusters of
    other lengths or shapes, a nan among the clusters, and a level not between 0 and 1.
    """
    level, won = checked_level(level), finite_vector("points", points)
    refuse_where("points", won, (won < 0) | (won > 1), "0 to 1")
    longer, shown = _beside("longer_by", longer_by, won.size), _order(order, won.size)
    clustering = clustering_of(clusters, won.size)
    design, why_not = _design(longer, shown)
    fit = None if why_not else _fit(design, won, clustering)
    rate = _interval(fit, 0, clustering.count - 1, level)
    length = (None, None, None) if not longer.any() else _interval(fit, 1, clustering.count - 1, level)
    reason = fit.reason if fit else why_not
    return LengthControlled(
        rate=_rate(rate[0]),
        low=_rate(rate[1]),
        high=_rate(rate[2]),
        length_effect=length[0],
        length_low=length[1],
        length_high=length[2],
        level=level,
        method=f"logistic on {'length and order' if shown is not None else 'length'}; cluster-robust t",
        n=won.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=reason,
        length_reason="no answer is longer than the other" if won.size and not longer.any() else reason,
    )


def _beside(name: str, values: ArrayLike, n: int) -> FloatArray:
    array = finite_vector(name, values)
    if array.size != n:
        raise ValueError(f"{name}: got {array.size}, wanted as many as the {n} points")
    return array


def _order(order: ArrayLike | None, n: int) -> FloatArray | None:
    """None where it does not vary."""
    if order is None:
        return None
    shown = _beside("order", order, n)
    refuse_where("order", shown, ~np.isin(shown, (-1.0, 0.0, 1.0)), "1, -1 or 0")
    return shown if shown.size and np.ptp(shown) else None


def _design(longer: FloatArray, shown: FloatArray | None) -> tuple[FloatArray, str | None]:
    """The rows of the regression, shape (n, 1 to 3), or why there can be none."""
    columns = [np.ones(longer.size)]
    if not longer.size:
        return columns[0][:, None], "no comparisons: a rate needs at least 1"
    if longer.any():
        scale = float(np.abs(longer).max())
        if is_rounding(np.ptp(longer), scale):
            return columns[0][:, None], f"all differences in length are {longer[0]:g}: what they do cannot be told"
        if longer.min() > 0 or longer.max() < 0:
            return columns[0][:, None], "the same side is always longer: what equal lengths would do cannot be told"
        columns.append(np.tanh(longer / scale / (longer / scale).std(ddof=1)))
    if shown is not None:
        columns.append(shown)
    design = np.column_stack(columns)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return design, "length and order go together always: what each of them does cannot be told apart"
    return design, None


def _fit(design: FloatArray, won: FloatArray, clustering: Clustering) -> _Fit:
    terms = np.eye(design.shape[1])
    held, halves = np.vstack([design, terms]), np.full(len(terms), 0.5)
    wins, losses = np.concatenate([won, halves]), np.concatenate([1.0 - won, halves])
    found = logistic_fits(held, wins[None], losses[None])
    if np.isnan(found).any():
        return _Fit(found[0], None, "the maximum of the likelihood was not reached")
    if few := _too_few(won.size, clustering):
        return _Fit(found[0], None, few)
    bread = np.linalg.inv(information(held, found, (wins + losses)[None])[0])
    scores = held * (wins - (wins + losses) * probability(held @ found[0]))[:, None]
    errors = _sandwich(bread, scores, len(terms), clustering)
    if is_rounding(errors[0], 1.0):
        return _Fit(found[0], None, f"the points of all {clustering.count} clusters leave no spread for an interval")
    return _Fit(found[0], errors, None)


def _too_few(n: int, clustering: Clustering) -> str | None:
    if few := too_few(n, clustering, "comparison"):
        return few
    if clustering.count < FEWEST_CLUSTERS:
        noun = "comparisons" if clustering.all_alone else "clusters"
        return f"{clustering.count} {noun}: an interval needs at least {FEWEST_CLUSTERS}"
    return None


def _sandwich(bread: FloatArray, scores: FloatArray, terms: int, clustering: Clustering) -> FloatArray:
    """The standard errors, shape (terms,); the last of the scores, one for each term, are those of what holds it."""
    n, count = clustering.numbers.size, clustering.count
    of_clusters = np.zeros((count, terms))
    np.add.at(of_clusters, clustering.numbers, scores[:n])
    correction = count / (count - 1) * (n - 1) / (n - terms)
    meat = correction * of_clusters.T @ of_clusters + scores[n:].T @ scores[n:]
    return np.asarray(np.sqrt(np.diag(bread @ meat @ bread)), dtype=np.float64)


def _interval(fit: _Fit | None, term: int, df: int, level: float) -> tuple[float | None, float | None, float | None]:
    """The coefficient of a term and the ends of its interval, in log-odds."""
    if fit is None or math.isnan(fit.coefficients[term]):
        return None, None, None
    centre = float(fit.coefficients[term])
    if fit.errors is None:
        return centre, None, None
    return centre, *t_interval(centre, float(fit.errors[term]), df=df, level=level)


def _rate(log_odds: float | None) -> float | None:
    return None if log_odds is None else float(probability(np.asarray(log_odds)))
