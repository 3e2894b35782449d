"""Krippendorff's alpha: the agreement of several raters, with missing ratings allowed."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.stats.arrays import LARGEST, FloatArray, checked_confidence_level
from evalflows.stats.cluster_draws import checked_resamples, drawn_counts, percentile_interval
from evalflows.stats.clusters import Clustering, clustering_of, is_rounding

Metric = Literal["nominal", "ordinal", "interval"]

MAX_UNDEFINED_SHARE = 0.05
"""Resamples in which all ratings are equal have no alpha; they are dropped up to this share of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KrippendorffAlpha:
    """Alpha: 1 is full agreement, 0 chance agreement, below 0 worse than chance."""

    alpha: float | None  # None with a reason, like `low` and `high`
    low: float | None
    high: float | None
    confidence_level: float  # the confidence level, 0 to 1
    metric: Metric  # the scale of the ratings: labels, ranks, or numbers with meaningful differences
    method: str
    n_units: int  # with at least two ratings
    n_clusters: int | None  # of these units; None without clusters
    resamples: int | None  # None without an interval, like `seed`
    seed: int | None
    reason: str | None  # why alpha or its interval is missing; None if both are present


class _Ratings(NamedTuple):
    """The ratings of the U units that have at least two."""

    counts: FloatArray  # shape (U, K): how often each unit got each value
    values: FloatArray  # shape (K,), in order; for labels, their numbers
    numbers: NDArray[np.intp]  # shape (U,): the cluster of each unit
    n_clusters: int


def krippendorff_alpha(
    ratings: Sequence[Sequence[Any]],
    clusters: Sequence[Hashable] | None = None,
    *,
    metric: Metric = "nominal",
    confidence_level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> KrippendorffAlpha:
    """Return Krippendorff's alpha of `ratings`: U units with one rating per rater, None or nan for a missing one.

    alpha is 1 - (n - 1) times the sum of o_ck d_ck over the sum of n_c n_k d_ck. o_ck counts the pairs of raters of a
    unit that gave c and k, where the pairs of a unit weigh as much in total as its number of ratings; n_c counts how
    often c was given; d_ck is the distance of c and k (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability",
    section D). The distance is 0 or 1 for `nominal`, where ratings are any hashable labels; the squared difference of
    the numbers for `interval`, and of their ranks among all ratings for `ordinal`. Units with fewer than two ratings
    are ignored.

    The interval is the percentile interval of `resamples` alphas from units drawn with replacement (Efron 1979; Zapf,
    Castell, Morawietz & Karch 2016), or from whole clusters if `clusters`, U hashables, are given; a unit whose cluster
    is None is its own cluster. The same units in another order, with the same seed, give the same interval. It is
    somewhat narrow below about 20 units or clusters. Alpha is undefined if all
    ratings are equal. There is no interval with fewer than two units or clusters, if all resamples give the same alpha,
    or if too many have none.

    Raise ValueError if the units differ in their number of ratings, the number of clusters is wrong, a cluster is nan,
    the metric is unknown, a rating is not a finite number where numbers are needed, the level is not between 0 and 1,
    or resamples is below 1.
    """
    confidence_level, resamples = checked_confidence_level(confidence_level), checked_resamples(resamples)
    if metric not in ("nominal", "ordinal", "interval"):
        raise ValueError(f"metric: got {metric!r}, wanted nominal, ordinal or interval")
    rated = _ratings(ratings, clustering_of(clusters, len(ratings)), metric)
    estimate = _alphas(rated, np.ones((1, rated.n_clusters)), metric)[0] if rated.counts.size else np.nan
    alpha = None if np.isnan(estimate) else float(estimate)
    interval, reason = (
        (None, _no_alpha(rated)) if alpha is None else _interval(rated, metric, confidence_level, (resamples, seed))
    )
    return KrippendorffAlpha(
        alpha=alpha,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=confidence_level,
        metric=metric,
        method=f"krippendorff; {'' if rated.n_clusters == len(rated.counts) else 'cluster '}bootstrap percentiles",
        n_units=len(rated.counts),
        n_clusters=None if clusters is None else rated.n_clusters,
        resamples=resamples if interval else None,
        seed=seed if interval else None,
        reason=reason,
    )


def _ratings(ratings: Sequence[Sequence[Any]], clustering: Clustering, metric: Metric) -> _Ratings:
    units, rated_values = [], []
    for number, unit in enumerate(ratings):
        if len(unit) != len(ratings[0]):
            raise ValueError(f"ratings[{number}]: got {len(unit)} ratings, wanted {len(ratings[0])}, as of the first")
        rated = [_rating(rating, number, metric) for rating in unit if rating is not None and rating == rating]
        if len(rated) > 1:
            units += [number] * len(rated)
            rated_values += rated
    values, places = _numbered(rated_values, metric)
    rated_units, rows = np.unique(np.array(units, dtype=np.intp), return_inverse=True)
    counts = np.zeros((rated_units.size, values.size))
    np.add.at(counts, (rows, places), 1.0)
    clusters, numbers = np.unique(clustering.numbers[rated_units], return_inverse=True)
    return _in_canonical_order(_Ratings(counts, values, numbers, clusters.size))


def _in_canonical_order(rated: _Ratings) -> _Ratings:
    """Order clusters by their units, and units by their ratings, so that what is drawn depends on the content alone."""
    if not rated.counts.size:
        return rated
    _, kinds = np.unique(rated.counts, axis=0, return_inverse=True)
    units: list[list[int]] = [[] for _ in range(rated.n_clusters)]
    for unit in np.argsort(kinds.ravel(), kind="stable"):
        units[rated.numbers[unit]].append(int(unit))
    units.sort(key=lambda of_cluster: [int(kinds.ravel()[unit]) for unit in of_cluster])
    numbers = np.repeat(np.arange(rated.n_clusters), [len(of_cluster) for of_cluster in units])
    return rated._replace(counts=rated.counts[[unit for each in units for unit in each]], numbers=numbers)


def _rating(value: Any, unit: int, metric: Metric) -> Hashable:
    if metric == "nominal":
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool | int | float | np.integer | np.floating | np.bool_) and abs(float(value)) <= LARGEST:
        return float(value)
    raise ValueError(f"ratings[{unit}]: got {value!r}, wanted a finite number, as the metric is {metric}")


def _numbered(ratings: Sequence[Any], metric: Metric) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the distinct values in order, and the index of each rating's value; labels are in order of their text."""
    if metric == "nominal":
        ranks = {label: rank for rank, label in enumerate(sorted({*ratings}, key=_text_of))}
        places = [ranks[label] for label in ratings]
        return np.arange(len(ranks), dtype=np.float64), np.array(places, dtype=np.intp)
    return np.unique(np.array(ratings, dtype=np.float64), return_inverse=True)


def _text_of(label: Hashable) -> str:
    """Return a text to order labels by: the same for numbers that are equal, as True, 1 and 1.0 are."""
    return repr(float(label)) if isinstance(label, bool | int | float) else repr(label)


def _alphas(rated: _Ratings, multiplicities: FloatArray, metric: Metric) -> FloatArray:
    """Return the alpha of each resample, nan if undefined.

    `multiplicities`, shape (R, clusters), say how often each cluster was drawn.
    """
    weights = multiplicities[:, rated.numbers]
    totals = weights @ rated.counts  # how often each value occurs, shape (R, K)
    disagreements = _nominal if metric == "nominal" else _ranked if metric == "ordinal" else _numeric
    observed, by_chance = disagreements(rated, weights, totals)
    n = totals.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_chance > 0, 1 - (n - 1) * observed / by_chance, np.nan)


def _nominal(rated: _Ratings, weights: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the sums of o_ck d_ck and of n_c n_k d_ck in each resample."""
    ratings = rated.counts.sum(axis=1)
    within = (ratings**2 - (rated.counts**2).sum(axis=1)) / (ratings - 1)
    return weights @ within, totals.sum(axis=1) ** 2 - (totals**2).sum(axis=1)


def _numeric(rated: _Ratings, weights: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the same sums for squared differences of the values."""
    scale = np.abs(rated.values).max() or 1.0
    points = np.broadcast_to((rated.values - rated.values.mean()) / scale, totals.shape)
    return _squares(rated, weights, totals, points)


def _ranked(rated: _Ratings, weights: FloatArray, totals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the same sums for squared differences of ranks: the count below a value plus half of its ties."""
    return _squares(rated, weights, totals, np.cumsum(totals, axis=1) - totals / 2)


def _squares(
    rated: _Ratings, weights: FloatArray, totals: FloatArray, points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the same sums for `points`, since squared distances over all pairs are 2 n times those from the mean."""
    ratings = rated.counts.sum(axis=1)
    centred = points - ((totals * points).sum(axis=1) / totals.sum(axis=1))[:, None]
    sums, squares = centred @ rated.counts.T, centred**2 @ rated.counts.T  # of each unit, shape (R, U)
    observed = (weights * 2 * (ratings * squares - sums**2) / (ratings - 1)).sum(axis=1)
    return observed, 2 * totals.sum(axis=1) * (totals * centred**2).sum(axis=1)


def _interval(
    rated: _Ratings, metric: Metric, confidence_level: float, bootstrap: tuple[int, int]
) -> tuple[tuple[float, float] | None, str | None]:
    """Return the interval, or why it is missing. `bootstrap` is the number of resamples and the seed."""
    if rated.n_clusters < 2:
        return None, f"all {len(rated.counts)} units with two ratings are in one cluster: an interval needs at least 2"
    alphas = np.concatenate([_alphas(rated, counts, metric) for counts in drawn_counts(rated.n_clusters, *bootstrap)])
    defined = alphas[~np.isnan(alphas)]
    if defined.size < (1 - MAX_UNDEFINED_SHARE) * alphas.size:
        return None, "one value dominates: too many resamples hold only that value and have no alpha"
    if is_rounding(np.ptp(defined), 1.0):
        same = f"all resamples of {rated.n_clusters} clusters give the same alpha"
        return None, f"{same}: no spread to compute an interval from"
    return percentile_interval(defined, confidence_level), None


def _no_alpha(rated: _Ratings) -> str:
    if not len(rated.counts):
        return "no unit has two ratings: alpha needs at least 1"
    return f"all {int(rated.counts.sum())} ratings are the same: chance agreement is full too"
