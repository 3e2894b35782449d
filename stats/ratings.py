"""How strong: ratings of entries that were compared two at a time, and how sure they are."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stats.arrays import FloatArray, checked_level
from stats.clusters import Clustering, clustering_of, too_few
from stats.strengths import Strengths
from stats.tournament import checked_judgements, tournament


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings of entries in log-odds, their mean 0: an entry 1 above another beats it with odds of e to 1."""

    ratings: tuple[float, ...] | None  # of entry 0, 1, ...; None with a reason
    lows: tuple[float, ...] | None  # None with a reason, as are `highs`
    highs: tuple[float, ...] | None
    order_effect: float | None  # log-odds of being shown first; None with `order_reason`
    order_low: float | None  # None with a reason, or with `order_reason`, as is `order_high`
    order_high: float | None
    level: float  # how often such intervals cover a true rating, 0 to 1
    method: str  # of the ratings; of the intervals
    n: int  # judgements
    n_clusters: int | None  # None where no clusters were given
    resamples: int | None  # None where there are no intervals
    seed: int | None  # None where chance had no part
    guarded: bool  # whether half a win each way was added
    reason: str | None  # why there are no ratings, or no intervals; None if there are both
    order_reason: str | None  # why there is no order effect, or no interval for it; None if there are both


class _Found(NamedTuple):
    """What was fitted, shape (K,) or (K + 1,) with the order last, and the ends of intervals of that shape."""

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
    guard: bool = True,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Ratings:
    """The ratings under which the results of n comparisons are the likeliest, and two-sided intervals for them.

    `first` and `second`, shape (n,), are numbers of entries, 0 to `entries` - 1, by the order in which they were shown;
    `points`, shape (n,), what the first got: 1, 0.5 for a tie, 0. `weights`, shape (n,), above 0, say how much each
    counts: both orders of one comparison half each, say. The first is preferred with probability
    1 / (1 + exp(-(r_first - r_second + order))), ratings r with a mean of 0 (Bradley & Terry 1952), and `order` 0, or
    with `order_term` estimated too (Davidson & Beaver 1977). A tie counts as half a win and half a loss. Where every
    two entries were only ever shown in one order, an order effect cannot be told from strength, and is left out.

    With `guard`, every two entries that met have half a win each way added, shown in no order, and the order effect
    half a win and half a loss that it alone would explain; an entry that won, or lost, all then has a finite rating.
    Without it, there are no ratings where an entry or a group of them never lost to the others (Ford 1957), or where
    strength and order explain all results. Either way there are none if some never met, not even by way of others.

    Intervals are the percentiles of `resamples` fits (Efron 1979): clusters are drawn with replacement as often as
    there are, n hashables as elsewhere, None being alone. In each, the guard's halves are drawn too, from the gamma
    distribution with mean and shape 1/2; of two entries the interval is so, however one-sided their results, about that
    of the beta distribution with 1/2 added to wins and losses (Jeffreys 1946). Without this, whoever wins all would
    seem to be so for sure. There are none with fewer than two clusters, where unguarded resamples all are the same, and
    where one of them has no maximum. They need some 20 clusters to be about as wide as they should.

    Raises ValueError for sides, weights or clusters of other lengths or shapes, entries below 2, numbers that are not
    of entries, an entry compared with itself, points other than 0, 0.5 and 1, weights that are not above 0, nan and
    inf, a nan among the clusters, a level not between 0 and 1, and resamples below 1.
    """
    level, resamples = checked_level(level), _checked_resamples(resamples)
    judged = checked_judgements(first, second, points, weights, entries)
    clustering = clustering_of(clusters, judged.points.size)
    in_both = order_term and tournament(judged, clustering, entries).in_both_orders()
    played = tournament(judged if in_both else judged.in_one_order(), clustering, entries)
    found = _found(Strengths(played, order_term=in_both, guarded=guard), clustering, (level, resamples, seed))
    ratings, lows, highs = (_ratings(each, entries) for each in (found.fit, *found.ends))
    order, order_low, order_high = (_order(each, in_both) for each in (found.fit, *found.ends))
    return Ratings(
        ratings=ratings,
        lows=lows,
        highs=highs,
        order_effect=order,
        order_low=order_low,
        order_high=order_high,
        level=level,
        method=_method(in_both, clustering),
        n=judged.points.size,
        n_clusters=None if clusters is None else clustering.count,
        resamples=None if lows is None else resamples,
        seed=None if lows is None else seed,
        guarded=guard,
        reason=found.reason,
        order_reason=found.reason if in_both else _no_order(order_term),
    )


def _checked_resamples(resamples: int) -> int:
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < 1:
        raise ValueError(f"resamples: got {resamples!r}, wanted a whole number of at least 1")
    return int(resamples)


def _ratings(fit: FloatArray | None, entries: int) -> tuple[float, ...] | None:
    return None if fit is None else tuple(fit[:entries].tolist())


def _order(fit: FloatArray | None, in_both: bool) -> float | None:
    return float(fit[-1]) if fit is not None and in_both else None


def _method(in_both: bool, clustering: Clustering) -> str:
    model = "bradley-terry with an order term" if in_both else "bradley-terry"
    return f"{model}; {'' if clustering.all_alone else 'cluster '}bootstrap percentiles"


def _no_order(asked: bool) -> str:
    if not asked:
        return "no order term was asked for"
    return "no two entries were shown in both orders: what the order does cannot be told from strength"


def _found(strengths: Strengths, clustering: Clustering, drawn: tuple[float, int, int]) -> _Found:
    """`drawn` is the level, how many resamples, and the seed."""
    level, resamples, seed = drawn
    if reason := strengths.unknowable():
        return _Found(reason=reason)
    fit = strengths.fit()
    if np.isnan(fit).any():
        return _Found(reason="the maximum of the likelihood was not reached")
    if few := too_few(clustering.numbers.size, clustering, "judgement"):
        return _Found(fit, reason=few)
    fits = strengths.resampled(resamples, np.random.default_rng(seed))
    if reason := strengths.no_interval(fits):
        return _Found(fit, reason=reason)
    low, high = np.quantile(fits, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return _Found(fit, (low, high))
