"""Bradley-Terry ratings of entries from pairwise comparisons, with intervals."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.distributions import t_interval, t_quantile
from evalflows.stats.preferences.strengths import Guards, Strengths, guards_of
from evalflows.stats.preferences.tournament import Tournament, checked_tournament

Guard = Literal["needed", "always", "never"]
"""Which entries get half a win and half a loss: those whose ratings would be infinite, all, or none."""

SMALLEST_VARIANCE = 1e-18
"""Variances of estimates up to this size, in squared log-odds, are rounding: estimates are accurate to 1e-9."""

EXPLAINED = "the position shown explains every result"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingDifference:
    """The rating of one entry minus that of another, in log-odds."""

    difference: float | None  # None without ratings
    low: float | None  # None without intervals, like `high` and `standard_error`
    high: float | None
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings of entries in log-odds, with mean 0: an entry rated 1 above another beats it with odds of e to 1."""

    ratings: tuple[float, ...] | None  # of entry 0, 1, ...; None with a reason
    lows: tuple[float, ...] | None  # None with a reason, like `highs`, `standard_errors` and `covariance`
    highs: tuple[float, ...] | None
    standard_errors: tuple[float, ...] | None
    covariance: tuple[tuple[float, ...], ...] | None  # of the ratings
    guard: Guard  # as requested
    guarded: tuple[int, ...]  # the entries that were guarded
    guard_reason: str | None  # why; None if no rating and no order effect was guarded
    order_term: bool  # whether the order effect is in the model
    order_effect: float | None  # log-odds of being shown first; None with `order_reason`
    order_low: float | None  # None with `reason` or `order_reason`, like `order_high` and `order_standard_error`
    order_high: float | None
    order_standard_error: float | None
    confidence_level: float  # the confidence level, 0 to 1
    df: int | None  # degrees of freedom of the intervals; None without
    method: str  # of the ratings; of the intervals
    n: int  # judgements
    n_clusters: int | None  # None without clusters
    apart: tuple[int, int] | None  # two entries that no comparisons connect, so that there are no ratings; None if none
    reason: str | None  # why ratings or intervals are missing; None if both are present
    order_reason: str | None  # why the order effect or its interval is missing; None if both are present

    def difference(self, entry: int, other: int) -> RatingDifference:
        """Return how much higher `entry` is rated than `other`, with an interval at the same confidence level."""
        if self.ratings is None:
            return RatingDifference(difference=None, low=None, high=None, standard_error=None)
        difference = self.ratings[entry] - self.ratings[other]
        if self.covariance is None or self.df is None:
            return RatingDifference(difference=difference, low=None, high=None, standard_error=None)
        of = self.covariance
        error = math.sqrt(max(of[entry][entry] + of[other][other] - 2 * of[entry][other], 0.0))
        low, high = t_interval(difference, error, df=self.df, confidence_level=self.confidence_level)
        return RatingDifference(difference=difference, low=low, high=high, standard_error=error)


class _Fitted(NamedTuple):
    """Estimates of some terms, shape (T,), and their covariance."""

    estimates: FloatArray | None = None
    covariance: FloatArray | None = None
    reason: str | None = None  # why one of them is missing

    def of(self, terms: slice) -> "_Fitted":
        """Return the estimates of these terms, without a covariance if it is 0."""
        if self.estimates is None or self.covariance is None:
            return self._replace(estimates=None if self.estimates is None else self.estimates[terms])
        part = self.covariance[terms, terms]
        exact = "all points are fitted exactly: no variation to compute an interval from"
        varies = np.diag(part).max() > SMALLEST_VARIANCE
        return _Fitted(self.estimates[terms], part if varies else None, None if varies else exact)

    def columns(self, df: int, confidence_level: float) -> list[tuple[float, ...] | None]:
        """Return estimates, lows, highs and standard errors; None for what is missing."""
        if self.estimates is None or self.covariance is None:
            return [None if self.estimates is None else tuple(self.estimates.tolist()), None, None, None]
        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        half = t_quantile(confidence_level, df) * errors
        numbers = self.estimates, self.estimates - half, self.estimates + half, errors
        return [tuple(each.tolist()) for each in numbers]


def bradley_terry(
    first: ArrayLike,
    second: ArrayLike,
    points: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    entries: int,
    weights: ArrayLike | None = None,
    guard: Guard = "needed",
    order_term: bool | None = None,
    order_known: ArrayLike | None = None,
    confidence_level: float = 0.95,
) -> Ratings:
    """Return the maximum-likelihood ratings from n comparisons, with two-sided intervals.

    `first` and `second`, shape (n,), are entry numbers, 0 to `entries` - 1, in the order shown. `points`, shape (n,), 0
    to 1, are those of the first entry: 1 for a win, 0.5 for a tie, anything between for a graded preference.
    `weights`, shape (n,), above 0, weight the comparisons, for example 1/2 for each of the two orders of a pair. The
    expected points of the first entry are 1 / (1 + exp(-(r_first - r_second + order))), with ratings r of mean 0
    (Bradley & Terry 1952), fitted as a fractional logit (Papke & Wooldridge 1996): a tie is half a win and half a loss.

    `order` is estimated with the ratings (Davidson & Beaver 1977). `order_known`, shape (n,), is false for comparisons
    whose order is not known (default: all are known): they have no order effect. By default it is
    estimated if any two entries were shown in both orders; with `order_term` True also where only ratings of third
    entries separate it from strength. It is left out, with `order_reason`, if nothing does.

    An entry, or a group of entries, that never lost to the others or never beat them has an infinite
    maximum-likelihood rating (Ford 1957). With `guard` "needed", only such entries get half a win and half a loss
    against the mean of the others (log-F(1, 1): Greenland & Mansournia 2015); if no group of entries is larger than
    all others, every entry gets them, against the mean. Likewise the order effect, if position explains every result.
    `guarded` and `guard_reason` say so. "always" adds them to all; with "never" there are no ratings instead. There are
    no ratings if comparisons do not connect all entries.

    Standard errors are cluster-robust, with HC2 residuals and the factor G / (G - 1) of CR1 (MacKinnon & White 1985,
    Cameron & Miller 2015), or the same without clusters; intervals are Student's t with G - 1 degrees of freedom, in
    log-odds. `clusters` are n hashables; an item whose cluster is None is its own cluster. Results between a group that
    is infinitely far apart and the others have no variation; the variance by the model replaces it, as if those of a
    cluster were one. There are no intervals with fewer than two clusters. In simulations (docs/simulation.md) the
    intervals of 20 entries cover from one vote per pair on.

    Raise ValueError for lengths or shapes that do not fit, entries below 2, entry numbers out of range, an entry
    compared with itself, points outside 0 to 1, weights that are not above 0, nan and inf, a nan among the clusters, an
    unknown `guard` or `order_term`, and a level not between 0 and 1.
    """
    confidence_level = checked_confidence_level(confidence_level)
    _refuse_unknown(guard, order_term)
    played = checked_tournament(first, second, points, weights, order_known, entries=entries)
    clustering, no_order = clustering_of(clusters, played.points.size), _no_order(played, order_term)
    guards = guards_of(played, order_term=no_order is None, always=guard == "always")
    fitted = _fitted(Strengths(played, guards, order_term=no_order is None), clustering, guard)
    df, of_entries = clustering.count - 1, fitted.of(slice(entries))
    of_order = _Fitted(reason=no_order) if no_order else fitted.of(slice(entries, None))
    ratings, lows, highs, standard_errors = of_entries.columns(df, confidence_level)
    order = [None if column is None else column[0] for column in of_order.columns(df, confidence_level)]
    return Ratings(
        ratings=ratings,
        lows=lows,
        highs=highs,
        standard_errors=standard_errors,
        covariance=_rows(of_entries.covariance),
        guard=guard,
        guarded=() if ratings is None else tuple(guards.entries.tolist()),
        guard_reason=None if ratings is None else _guard_reason(guards, guard, entries),
        order_term=no_order is None,
        order_effect=order[0],
        order_low=order[1],
        order_high=order[2],
        order_standard_error=order[3],
        confidence_level=confidence_level,
        df=df if of_entries.covariance is not None or of_order.covariance is not None else None,
        method=_method(clustering, order_term=no_order is None),
        n=played.points.size,
        n_clusters=None if clusters is None else clustering.count,
        apart=played.apart(),
        reason=of_entries.reason,
        order_reason=of_order.reason,
    )


def _refuse_unknown(guard: Guard, order_term: bool | None) -> None:
    if guard not in get_args(Guard):
        raise ValueError(f"guard: got {guard!r}, wanted one of {', '.join(get_args(Guard))}")
    if order_term not in (True, False, None):
        raise ValueError(f"order_term: got {order_term!r}, wanted true, false or nothing")


def _no_order(played: Tournament, order_term: bool | None) -> str | None:
    """Return why the order effect is not in the model; None if it is."""
    if order_term is False:
        return "no order term was requested"
    if played.order.size and not played.order.any():
        return "no order is known"
    if played.in_both_orders() or (order_term and played.order_is_identified()):
        return None
    separated = "separated from strength" + ("" if order_term else " without the ratings of third entries")
    return f"no two entries were shown in both orders: the order effect cannot be {separated}"


def _fitted(strengths: Strengths, clustering: Clustering, guard: Guard) -> _Fitted:
    if reason := _no_ratings(strengths, guard):
        return _Fitted(reason=reason)
    coefficients = strengths.coefficients()
    if coefficients is None:
        return _Fitted(reason="the likelihood maximisation did not converge")
    estimates = strengths.estimates(coefficients)
    if few := too_few(clustering.numbers.size, clustering, "judgement"):
        return _Fitted(estimates, None, few)
    return _Fitted(estimates, strengths.covariance(coefficients, clustering))


def _no_ratings(strengths: Strengths, guard: Guard) -> str | None:
    played, guards = strengths.played, strengths.guards
    if not played.first.size:
        return "no judgements: ratings need at least 1"
    if apart := played.apart():
        return f"entries {apart[0]} and {apart[1]} are not connected by comparisons: no common scale"
    if guard == "never" and guards.entries.size:
        return f"{_never_both(guards.entries.size, played.entries)}: no finite ratings without a guard"
    if guard == "never" and guards.order:
        return f"{EXPLAINED}: no finite order effect without a guard"
    return None


def _guard_reason(guards: Guards, guard: Guard, entries: int) -> str | None:
    added = "half a win and half a loss added to"
    if guard == "always":
        return f"as requested: {added} every entry{' and the order effect' if guards.order else ''}"
    reasons = []
    if guards.entries.size:
        reasons.append(f"{_never_both(guards.entries.size, entries)}: {added} each")
    if guards.order:
        reasons.append(f"{EXPLAINED}: {added} the order effect")
    return "; ".join(reasons) or None


def _never_both(guarded: int, entries: int) -> str:
    if guarded == entries:
        return "there is no largest group of entries that beat and lost to each other"
    alone = "1 entry" if guarded == 1 else f"{guarded} entries"
    return f"{alone} of {entries} never lost to the others or never beat them"


def _rows(matrix: FloatArray | None) -> tuple[tuple[float, ...], ...] | None:
    return None if matrix is None else tuple(tuple(row) for row in matrix.tolist())


def _method(clustering: Clustering, *, order_term: bool) -> str:
    model = "bradley-terry with an order term" if order_term else "bradley-terry"
    return f"{model}; {'heteroskedasticity' if clustering.all_singletons else 'cluster'}-robust t"
