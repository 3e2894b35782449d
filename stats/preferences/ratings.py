"""Bradley-Terry ratings of entries from pairwise comparisons, with intervals."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.stats.arrays import FloatArray, checked_confidence_level
from evalflows.stats.cluster_draws import checked_resamples
from evalflows.stats.clusters import Clustering, clustering_of, too_few
from evalflows.stats.preferences.strengths import Strengths
from evalflows.stats.preferences.tournament import checked_judgements, tournament


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings of entries in log-odds, with mean 0: an entry rated 1 above another beats it with odds of e to 1."""

    ratings: tuple[float, ...] | None  # of entry 0, 1, ...; None with a reason
    lows: tuple[float, ...] | None  # None with a reason, like `highs`
    highs: tuple[float, ...] | None
    order_effect: float | None  # log-odds of being shown first; None with `order_reason`
    order_low: float | None  # None with `reason` or `order_reason`, like `order_high`
    order_high: float | None
    confidence_level: float  # the confidence level, 0 to 1
    method: str  # of the ratings; of the intervals
    n: int  # judgements
    n_clusters: int | None  # None without clusters
    resamples: int | None  # None without intervals
    seed: int | None  # None if nothing was resampled
    reason: str | None  # why ratings or intervals are missing; None if both are present
    order_reason: str | None  # why the order effect or its interval is missing; None if both are present


class _Fitted(NamedTuple):
    """The fit, shape (K,), or (K + 1,) with the order effect last, and the ends of its intervals, of the same shape."""

    fit: FloatArray | None = None
    ends: tuple[FloatArray | None, FloatArray | None] = (None, None)
    reason: str | None = None


def bradley_terry(
    first: ArrayLike,
    second: ArrayLike,
    points: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    entries: int,
    weights: ArrayLike | None = None,
    order_term: bool = False,
    confidence_level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Ratings:
    """Return the maximum-likelihood ratings from n comparisons, with two-sided intervals.

    `first` and `second`, shape (n,), are entry numbers, 0 to `entries` - 1, in the order shown. `points`, shape (n,),
    are those of the first entry: 1 for a win, 0.5 for a tie, 0 for a loss. `weights`, shape (n,), above 0, weight the
    comparisons, for example 1/2 for each of the two orders of a pair. The first entry wins with probability
    1 / (1 + exp(-(r_first - r_second + order))), with ratings r of mean 0 (Bradley & Terry 1952). `order` is 0, or is
    estimated with `order_term` (Davidson & Beaver 1977). A tie counts as half a win and half a loss. If no two entries
    were shown in both orders, the order effect is not identifiable and is left out.

    Half a win each way, without an order, is added to each pair of entries that were compared, and half a win and half
    a loss to the order effect alone, so an entry that won or lost everything has a finite rating. There are no ratings
    if the comparisons do not connect all entries.

    Intervals are percentiles of `resamples` fits (Efron 1979) to clusters (n hashables; an item whose cluster is None
    is its own cluster) drawn with replacement. In each resample the added halves are drawn too, from the gamma
    distribution with mean and shape 1/2; for two entries, however one-sided their results, the interval is then close
    to that of the beta distribution with 1/2 added to wins and losses (Jeffreys 1946). Otherwise an entry that wins
    everything would have an interval of width 0. There are no intervals with fewer than two clusters, or if the fit of
    a resample does not converge. With fewer than about 20 clusters they are too narrow.

    Raise ValueError for lengths or shapes that do not fit, entries below 2, entry numbers out of range, an entry
    compared with itself, points other than 0, 0.5 and 1, weights that are not above 0, nan and inf, a nan among the
    clusters, a level not between 0 and 1, and resamples below 1.
    """
    confidence_level, resamples = checked_confidence_level(confidence_level), checked_resamples(resamples)
    judged = checked_judgements(first, second, points, weights, entries)
    clustering = clustering_of(clusters, judged.points.size)
    in_both = order_term and tournament(judged, clustering, entries).in_both_orders()
    played = tournament(judged if in_both else judged.in_one_order(), clustering, entries)
    fitted = _fitted(Strengths(played, order_term=in_both), clustering, (confidence_level, resamples, seed))
    ratings, lows, highs = (_ratings(estimate, entries) for estimate in (fitted.fit, *fitted.ends))
    order, order_low, order_high = (_order(estimate, in_both) for estimate in (fitted.fit, *fitted.ends))
    return Ratings(
        ratings=ratings,
        lows=lows,
        highs=highs,
        order_effect=order,
        order_low=order_low,
        order_high=order_high,
        confidence_level=confidence_level,
        method=_method(in_both, clustering),
        n=judged.points.size,
        n_clusters=None if clusters is None else clustering.count,
        resamples=None if lows is None else resamples,
        seed=None if lows is None else seed,
        reason=fitted.reason,
        order_reason=fitted.reason if in_both else _no_order(order_term),
    )


def _ratings(fit: FloatArray | None, entries: int) -> tuple[float, ...] | None:
    return None if fit is None else tuple(fit[:entries].tolist())


def _order(fit: FloatArray | None, in_both: bool) -> float | None:
    return float(fit[-1]) if fit is not None and in_both else None


def _method(in_both: bool, clustering: Clustering) -> str:
    model = "bradley-terry with an order term" if in_both else "bradley-terry"
    return f"{model}; {'' if clustering.all_singletons else 'cluster '}bootstrap percentiles"


def _no_order(requested: bool) -> str:
    if not requested:
        return "no order term was requested"
    return "no two entries were shown in both orders: the order effect cannot be separated from strength"


def _fitted(strengths: Strengths, clustering: Clustering, bootstrap: tuple[float, int, int]) -> _Fitted:
    """Fit ratings and intervals. `bootstrap` is the confidence level, the number of resamples and the seed."""
    confidence_level, resamples, seed = bootstrap
    if reason := strengths.no_ratings():
        return _Fitted(reason=reason)
    fit = strengths.fit()
    if np.isnan(fit).any():
        return _Fitted(reason="the likelihood maximisation did not converge")
    if few := too_few(clustering.numbers.size, clustering, "judgement"):
        return _Fitted(fit, reason=few)
    fits = strengths.resampled(resamples, np.random.default_rng(seed))
    if reason := strengths.no_interval(fits):
        return _Fitted(fit, reason=reason)
    low, high = np.quantile(fits, [(1 - confidence_level) / 2, (1 + confidence_level) / 2], axis=0)
    return _Fitted(fit, (low, high))
