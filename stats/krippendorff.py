"""Whether several raters agree, where not all of them rated everything: Krippendorff's alpha."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stats.arrays import LARGEST, FloatArray, checked_level
from stats.cluster_draws import checked_resamples, drawn_counts, percentile_interval
from stats.clusters import Clustering, clustering_of, is_rounding

Metric = Literal["nominal", "ordinal", "interval"]

MOST_UNDEFINED = 0.05
"""The largest share of resamples without an alpha, since all of their ratings were the same, that are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KrippendorffAlpha:
    """Alpha: 1 is full agreement, 0 as much as by chance, below 0 less."""

    alpha: float | None  # None with a reason, as are the two below
    low: float | None
    high: float | None
    level: float  # how often such intervals cover the true alpha, 0 to 1
    metric: Metric  # what the ratings are: labels, ranks, or numbers whose differences count
    method: str
    n_units: int  # with at least two ratings
    n_ratings: int  # of these units
    n_clusters: int | None  # of these units; None where no clusters were given
    resamples: int | None  # None where there is no interval, as is `seed`
    seed: int | None
    reason: str | None  # why there is no alpha, or no interval for it; None if there are both


class _Ratings(NamedTuple):
    """How often each value was given to each unit that has two ratings or more, shape (U, K), and to what cluster each
    unit belongs."""

    counts: FloatArray
    values: FloatArray  # shape (K,), in order; for labels, their numbers
    numbers: NDArray[np.intp]
    n_clusters: int


def krippendorff_alpha(
    ratings: Sequence[Sequence[Any]],
    clusters: Sequence[Hashable] | None = None,
    *,
    metric: Metric = "nominal",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> KrippendorffAlpha:
    """Krippendorff's alpha of `ratings`, U units of one rating a rater each, None or nan where one did not rate it.

    alpha is 1 - (n - 1) times the sum of o_ck d_ck over that of n_c n_k d_ck, with o_ck how often two raters of a unit
    gave c and k, each unit's pairs weighing as many as it has ratings, n_c how often c was given, and d_ck how far the
    two are apart (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section D): 0 or 1 for `nominal`, of
    which any hashable label will do; for numbers the square of their distance, in themselves (`interval`) or in the
    ranks that all ratings give them (`ordinal`). Units with fewer than two ratings say nothing.

    The interval is that of percentiles of `resamples` alphas, units drawn with replacement (Efron 1979; Zapf, Castell,
    Morawietz & Karch 2016), or whole clusters where `clusters`, U hashables, are given; None is alone. It is rather
    narrow with fewer than some 20 of them. No alpha where all ratings are the same; no interval with fewer than two
    units or clusters, where all resamples give the same, or where too many have no alpha.

    Raises ValueError for units with other numbers of ratings, another number of clusters, a nan among them, an unknown
    metric, ratings of numbers that are not finite numbers, a level not between 0 and 1, and resamples below 1.
    """
    level, resamples = checked_level(level), checked_resamples(resamples)
    if metric not in ("nominal", "ordinal", "interval"):
        raise ValueError(f"metric: got {metric!r}, wanted nominal, ordinal or interval")
    found = _ratings(ratings, clustering_of(clusters, len(ratings)), metric)
    every = _alphas(found, np.ones((1, found.n_clusters)), metric)[0] if found.counts.size else np.nan
    alpha = None if np.isnan(every) else float(every)
    interval, reason = (None, _none(found)) if alpha is None else _interval(found, metric, level, (resamples, seed))
    return KrippendorffAlpha(
        alpha=alpha,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        level=level,
        metric=metric,
        method=f"krippendorff; {'' if found.n_clusters == len(found.counts) else 'cluster '}bootstrap percentiles",
        n_units=len(found.counts),
        n_ratings=int(found.counts.sum()),
        n_clusters=None if clusters is None else found.n_clusters,
        resamples=resamples if interval else None,
        seed=seed if interval else None,
        reason=reason,
    )


def _ratings(ratings: Sequence[Sequence[Any]], clustering: Clustering, metric: Metric) -> _Ratings:
    units, given = [], []
    for number, unit in enumerate(ratings):
        if len(unit) != len(ratings[0]):
            raise ValueError(f"ratings[{number}]: got {len(unit)} ratings, wanted {len(ratings[0])}, as of the first")
        rated = [_rating(one, number, metric) for one in unit if one is not None and one == one]
        if len(rated) > 1:
            units += [number] * len(rated)
            given += rated
    values, places = _numbered(given, metric)
    kept, rows = np.unique(np.array(units, dtype=np.intp), return_inverse=True)
    counts = np.zeros((kept.size, values.size))
    np.add.at(counts, (rows, places), 1.0)
    of_kept, numbers = np.unique(clustering.numbers[kept], return_inverse=True)
    return _Ratings(counts, values, numbers, of_kept.size)


def _rating(value: Any, unit: int, metric: Metric) -> Hashable:
    if metric == "nominal":
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool | int | float | np.integer | np.floating | np.bool_) and abs(float(value)) <= LARGEST:
        return float(value)
    raise ValueError(f"ratings[{unit}]: got {value!r}, wanted a finite number, as the metric is {metric}")


def _numbered(given: Sequence[Any], metric: Metric) -> tuple[FloatArray, NDArray[np.intp]]:
    """The different values in order, and which of them each rating is; labels are numbered as they come."""
    if metric == "nominal":
        seen: dict[Hashable, int] = {}
        places = [seen.setdefault(one, len(seen)) for one in given]
        return np.arange(len(seen), dtype=np.float64), np.array(places, dtype=np.intp)
    return np.unique(np.array(given, dtype=np.float64), return_inverse=True)


def _alphas(found: _Ratings, drawn: FloatArray, metric: Metric) -> FloatArray:
    """Alpha of each resample, nan where it has none; `drawn`, shape (R, clusters), is how often each cluster counts."""
    weights = drawn[:, found.numbers]
    given = weights @ found.counts  # how often each value was given, shape (R, K)
    distances = _nominal if metric == "nominal" else _ranked if metric == "ordinal" else _numeric
    apart, by_chance = distances(found, weights, given)
    total = given.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_chance > 0, 1 - (total - 1) * apart / by_chance, np.nan)


def _nominal(found: _Ratings, weights: FloatArray, given: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What o_ck d_ck and n_c n_k d_ck add up to in each resample."""
    ratings = found.counts.sum(axis=1)
    within = (ratings**2 - (found.counts**2).sum(axis=1)) / (ratings - 1)
    return weights @ within, given.sum(axis=1) ** 2 - (given**2).sum(axis=1)


def _numeric(found: _Ratings, weights: FloatArray, given: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same with squares of distances between the values."""
    scale = np.abs(found.values).max() or 1.0
    points = np.broadcast_to((found.values - found.values.mean()) / scale, given.shape)
    return _squares(found, weights, given, points)


def _ranked(found: _Ratings, weights: FloatArray, given: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same between the ranks, up to a constant: the ratings below a value, and half of those that are the same."""
    return _squares(found, weights, given, np.cumsum(given, axis=1) - given / 2)


def _squares(
    found: _Ratings, weights: FloatArray, given: FloatArray, points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Squares of distances between all pairs of points are twice their number times those from their mean."""
    ratings = found.counts.sum(axis=1)
    centred = points - ((given * points).sum(axis=1) / given.sum(axis=1))[:, None]
    sums, squares = centred @ found.counts.T, centred**2 @ found.counts.T  # of each unit, shape (R, U)
    apart = (weights * 2 * (ratings * squares - sums**2) / (ratings - 1)).sum(axis=1)
    return apart, 2 * given.sum(axis=1) * (given * centred**2).sum(axis=1)


def _interval(
    found: _Ratings, metric: Metric, level: float, drawn: tuple[int, int]
) -> tuple[tuple[float, float] | None, str | None]:
    """The interval, or why there is none; `drawn` is how many resamples, and the seed."""
    if found.n_clusters < 2:
        return None, f"all {len(found.counts)} units with two ratings are one draw: an interval needs at least 2"
    every = np.concatenate([_alphas(found, some, metric) for some in drawn_counts(found.n_clusters, *drawn)])
    defined = every[~np.isnan(every)]
    if defined.size < (1 - MOST_UNDEFINED) * every.size:
        return None, "one value prevails, so that many resamples have nothing but it, and no alpha"
    if is_rounding(np.ptp(defined), 1.0):
        return (
            None,
            f"all resamples of {found.n_clusters} draws give one alpha: no spread to reckon an interval from",
        )
    return percentile_interval(defined, level), None


def _none(found: _Ratings) -> str:
    if not len(found.counts):
        return "no unit has two ratings: alpha needs at least 1"
    return f"all {int(found.counts.sum())} ratings are the same: agreement by chance would be full too"
