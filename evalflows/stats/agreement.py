"""Agreement of raters: equal labels, Cohen's kappa and Krippendorff's alpha; how well a judge tells right answers from
wrong ones; and what people should label next."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import (
    LARGEST,
    FloatArray,
    checked_confidence_level,
    checked_resamples,
    drawn_counts,
    finite_vector,
    is_rounding,
    mean_of,
    percentile_interval,
    refuse_where,
)
from evalflows.stats.clusters import Clustering, clustering_of, standard_error, too_few
from evalflows.stats.proportions import IntervalEstimate, clipped, newcombe_interval, normal_quantile, t_interval

Metric = Literal["nominal", "ordinal", "interval"]

NEWCOMBE, WELCH = "newcombe", "welch t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement(IntervalEstimate):
    """A share of agreement, 0 to 1, and kappa: 1 is full agreement, 0 chance agreement, below 0 worse than chance."""

    share: float | None  # of items on which both agree; None without items
    kappa: float | None  # None with a reason, like its standard error and interval
    standard_error: float | None  # of kappa
    method: str  # of kappa and of its interval
    n: int  # items
    n_labels: int  # different labels used by either rater
    n_clusters: int | None  # None without clusters
    resamples: int | None  # None if nothing was resampled, like `seed`
    seed: int | None


MAX_UNDEFINED_SHARE = 0.05
"""Resamples in which both raters use a single label have no kappa; they are dropped up to this share of all."""


def agreement(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    clusters: Sequence[Hashable] | None = None,
    *,
    confidence_level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Agreement:
    """Return how often two raters give the same label, and Cohen's kappa with a two-sided interval.

    `first` and `second` are n labels each, of any hashable type, matched by position. kappa is (po - pe) / (1 - pe),
    where po is the share of agreement and pe the share expected if the raters were independent with the same label
    frequencies (Cohen 1960). The standard error is the large-sample one that does not assume a kappa of 0 (Fleiss,
    Cohen & Everitt 1969, eq. 13); the interval is normal, clipped to -1 to 1. kappa is undefined without items, and
    when both raters give every item the same single label. There is no interval if the standard error is 0: with full
    agreement or full disagreement.

    With `clusters`, n hashables, the interval is the percentile interval of `resamples` kappas from clusters drawn with
    replacement (Efron 1979; Field & Welsh 2007), and the standard error is their standard deviation. An item whose
    cluster is None is its own cluster; if all are, the interval without clusters is used. There is no interval with a
    single cluster, or if one label is so frequent that more than 5 % of the resamples have no kappa. With fewer than
    about 20 clusters the interval is too narrow.

    Raise ValueError if the lengths differ, a label is None or nan, the number of clusters is wrong, a cluster is nan,
    the level is not between 0 and 1, or resamples is below 1.
    """
    confidence_level, resamples = checked_confidence_level(confidence_level), checked_resamples(resamples)
    places, n_labels = _places(first, second)
    clustering = clustering_of(clusters, len(first))
    table = np.bincount(places, minlength=n_labels**2).reshape(n_labels, n_labels).astype(np.float64)
    share, kappa = _share_and_kappa(table)
    if clustering.all_singletons or kappa is None:
        uncertainty = _of_large_samples(table, kappa, confidence_level)
    else:
        uncertainty = _resampled(places, n_labels, clustering, (confidence_level, resamples, seed))
    resampled = uncertainty.interval is not None and not clustering.all_singletons
    return Agreement(
        share=share,
        kappa=kappa,
        standard_error=uncertainty.error,
        low=uncertainty.interval[0] if uncertainty.interval else None,
        high=uncertainty.interval[1] if uncertainty.interval else None,
        confidence_level=confidence_level,
        method=f"cohen; {'fleiss-cohen-everitt' if clustering.all_singletons else 'cluster bootstrap percentiles'}",
        n=len(first),
        n_labels=n_labels,
        n_clusters=None if clusters is None else clustering.count,
        resamples=resamples if resampled else None,
        seed=seed if resampled else None,
        reason=_no_kappa(len(first)) if kappa is None else uncertainty.reason,
    )


class _Uncertainty(NamedTuple):
    """The standard error and interval of a kappa, or why they are missing."""

    error: float | None = None
    interval: tuple[float, float] | None = None
    reason: str | None = None


def _places(first: Sequence[Hashable], second: Sequence[Hashable]) -> tuple[NDArray[np.intp], int]:
    """Return the cell of each item in the flattened (row-major) table, and the number of labels."""
    if len(first) != len(second):
        raise ValueError(f"first: got {len(first)} labels, wanted as many as second, {len(second)}")
    seen: dict[Hashable, int] = {}
    rows = [_number("first", index, label, seen) for index, label in enumerate(first)]
    columns = [_number("second", index, label, seen) for index, label in enumerate(second)]
    return np.array(rows, dtype=np.intp) * len(seen) + np.array(columns, dtype=np.intp), len(seen)


def _number(name: str, index: int, label: Hashable, seen: dict[Hashable, int]) -> int:
    """Return the number of a label, adding it to `seen` if it is new."""
    if label is None or label != label:
        raise ValueError(f"{name}[{index}]: got {label!r}, wanted a label")
    return seen.setdefault(label, len(seen))


def _share_and_kappa(table: FloatArray) -> tuple[float | None, float | None]:
    n = table.sum()
    if not n:
        return None, None
    agreed, by_chance = np.trace(table), float(table.sum(axis=1) @ table.sum(axis=0))  # by chance: times n squared
    if by_chance == n * n:
        return float(agreed / n), None
    return float(agreed / n), float((agreed * n - by_chance) / (n * n - by_chance))


def _standard_error(table: FloatArray, kappa: float) -> float | None:
    n, parts = table.sum(), table / table.sum()
    first, second = parts.sum(axis=1), parts.sum(axis=0)
    by_chance = float(first @ second)
    agreed = np.diag(parts) @ (1 - (first + second) * (1 - kappa)) ** 2
    both = (second[:, None] + first[None, :]) ** 2
    differed = (1 - kappa) ** 2 * float((parts * both).sum() - np.diag(parts) @ np.diag(both))
    variance = float(agreed + differed - (kappa - by_chance * (1 - kappa)) ** 2)
    if is_rounding(variance, 1.0):
        return None
    return math.sqrt(variance / n) / (1 - by_chance)


def _of_large_samples(table: FloatArray, kappa: float | None, confidence_level: float) -> _Uncertainty:
    if kappa is None or not (error := _standard_error(table, kappa)):
        n = int(table.sum())
        return _Uncertainty(
            reason=f"the standard error of kappa over {n} items is 0: no spread to compute an interval from"
        )
    half = normal_quantile(confidence_level) * error
    return _Uncertainty(error, clipped((kappa - half, kappa + half), -1.0, 1.0))


def _resampled(
    places: NDArray[np.intp], n_labels: int, clustering: Clustering, bootstrap: tuple[float, int, int]
) -> _Uncertainty:
    """Return the bootstrap interval. `bootstrap` is the confidence level, the number of resamples and the seed."""
    confidence_level, resamples, seed = bootstrap
    if few := too_few(places.size, clustering, "item"):
        return _Uncertainty(reason=few)
    tables = np.zeros((clustering.count, n_labels**2))
    np.add.at(tables, (clustering.numbers, places), 1.0)
    batches = [_kappas(counts @ tables, n_labels) for counts in drawn_counts(clustering.count, resamples, seed)]
    kappas = np.concatenate(batches)
    defined = kappas[~np.isnan(kappas)]
    if defined.size < (1 - MAX_UNDEFINED_SHARE) * kappas.size:
        return _Uncertainty(reason="one label dominates: too many resamples hold only that label and have no kappa")
    if is_rounding(np.ptp(defined), 1.0):
        same = f"all resamples of {clustering.count} clusters give the same kappa"
        return _Uncertainty(reason=f"{same}: no spread to compute an interval from")
    error = float(defined.std(ddof=1)) if defined.size > 1 else None
    return _Uncertainty(error, clipped(percentile_interval(defined, confidence_level), -1.0, 1.0))


def _kappas(tables: FloatArray, n_labels: int) -> FloatArray:
    """Return the kappa of each flattened table, shape (R, n_labels ** 2); nan where it is undefined."""
    square = tables.reshape(-1, n_labels, n_labels)
    n, agreed = square.sum(axis=(1, 2)), np.trace(square, axis1=1, axis2=2)
    by_chance = (square.sum(axis=2) * square.sum(axis=1)).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_chance < n * n, (agreed * n - by_chance) / (n * n - by_chance), np.nan)


def _no_kappa(n: int) -> str:
    if not n:
        return "no items: kappa needs at least 1"
    return f"both raters gave all {n} items the same label: chance agreement is full too"


@dataclass(frozen=True, slots=True, kw_only=True)
class KrippendorffAlpha(IntervalEstimate):
    """Alpha: 1 is full agreement, 0 chance agreement, below 0 worse than chance."""

    alpha: float | None  # None with a reason, like `low` and `high`
    metric: Metric  # the scale of the ratings: labels, ranks, or numbers with meaningful differences
    n_units: int  # with at least two ratings
    n_clusters: int | None  # of these units; None without clusters
    resamples: int | None  # None without an interval, like `seed`
    seed: int | None


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
        (None, _no_alpha(rated))
        if alpha is None
        else _interval_distance(rated, metric, confidence_level, (resamples, seed))
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


def _interval_distance(
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


def expected_error(
    values: ArrayLike, low: float, high: float, *, spreads: ArrayLike | None = None, others: ArrayLike | None = None
) -> FloatArray:
    """Return an index of each item's likely squared judge error, as a share of the range squared: shape (n,).

    `values`, shape (n,), are the judge's scores, `low` and `high` the range they can take. The index is a sum of three
    terms: p (1 - p) for a score at the fraction p of the range, which is 0 at the ends and largest in the middle; the
    square of `spreads`, shape (n,), the standard deviation over repeats, nan for a single repeat; and the mean squared
    distance to `others`, shape (m, n), the scores of other judges, ignoring nan. It is meant for ordering items only.

    Raise ValueError for values outside the range, shapes that do not fit, and a range whose ends are not in order.
    """
    if not low < high:
        raise ValueError(f"range: got {low!r} to {high!r}, wanted the lower one first")
    scores = finite_vector("values", values)
    refuse_where("values", scores, (scores < low) | (scores > high), f"{low} to {high}")
    fraction = (scores - low) / (high - low)
    spread = np.nan_to_num(_of_shape("spreads", spreads, (scores.size,))) / (high - low)
    distances = (_of_shape("others", others, (-1, scores.size)) - scores) / (high - low)
    known = ~np.isnan(distances)
    squares = np.where(known, distances, 0.0) ** 2
    return np.asarray(fraction * (1 - fraction) + spread**2 + squares.sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _of_shape(name: str, values: ArrayLike | None, shape: tuple[int, ...]) -> FloatArray:
    """Return the values as an array of that shape, where -1 is any length; all nan if they are None."""
    if values is None:
        return np.full([max(length, 1) for length in shape[:-1]] + [shape[-1]], np.nan)
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != len(shape) or array.shape[-1] != shape[-1]:
        raise ValueError(f"{name}: got shape {array.shape}, wanted {shape}")
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrimination(IntervalEstimate):
    """Two shares and their difference with its interval, Youden's J: 1 is perfect discrimination, 0 none."""

    rate_right: float | None  # share of right answers judged right; None without right answers, likewise below
    rate_wrong: float | None  # share of wrong answers judged right
    difference: float | None  # the first minus the second
    method: str  # of the interval: "newcombe" or "welch t"
    n_right: int  # answers known right
    n_wrong: int  # answers known wrong


def discrimination(right: ArrayLike, wrong: ArrayLike, *, confidence_level: float = 0.95) -> Discrimination:
    """Return how much higher a judge scores right answers than wrong ones, with a two-sided interval.

    `right` and `wrong`, shapes (n,) and (m,), are its scores, 0 to 1, for answers known to be right and known to be
    wrong. If all scores are 0 or 1 the interval is the hybrid score interval (Newcombe 1998, method 10), else the t
    interval for unequal variances (Welch 1947), clipped to -1 to 1. There is no interval with fewer than two scores on
    either side, or if scores other than 0 and 1 are constant on both sides.

    Raise ValueError for a score outside 0 to 1, another shape, and a level not between 0 and 1.
    """
    confidence_level, right, wrong = (
        checked_confidence_level(confidence_level),
        _scores("right", right),
        _scores("wrong", wrong),
    )
    method = NEWCOMBE if _all_binary(right) and _all_binary(wrong) else WELCH
    interval, reason = _interval(right, wrong, method, confidence_level)
    rate_right, rate_wrong = (mean_of(scores) if scores.size else None for scores in (right, wrong))
    return Discrimination(
        rate_right=rate_right,
        rate_wrong=rate_wrong,
        difference=None if rate_right is None or rate_wrong is None else rate_right - rate_wrong,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=confidence_level,
        method=method,
        n_right=right.size,
        n_wrong=wrong.size,
        reason=reason,
    )


def _scores(name: str, values: ArrayLike) -> FloatArray:
    scores = finite_vector(name, values)
    refuse_where(name, scores, (scores < 0) | (scores > 1), "0 to 1")
    return scores


def _all_binary(scores: FloatArray) -> bool:
    return bool(np.all((scores == 0) | (scores == 1)))


def _interval(
    right: FloatArray, wrong: FloatArray, method: str, confidence_level: float
) -> tuple[tuple[float, float] | None, str | None]:
    if min(right.size, wrong.size) < 2:
        return None, f"{right.size} right and {wrong.size} wrong answers: an interval needs at least 2 of each"
    if method == NEWCOMBE:
        return newcombe_interval(
            int(right.sum()), right.size, int(wrong.sum()), wrong.size, confidence_level=confidence_level
        ), None
    return _welch_interval(right, wrong, confidence_level)


def _welch_interval(
    right: FloatArray, wrong: FloatArray, confidence_level: float
) -> tuple[tuple[float, float] | None, str | None]:
    errors = [float(standard_error(side, clustering_of(None, side.size), scale=1.0)) for side in (right, wrong)]
    error = math.hypot(*errors)
    if not error:
        return None, "scores are constant over right and over wrong answers: no spread to compute an interval from"
    # The degrees of freedom of Welch & Satterthwaite: 1 / df is the sum of these parts.
    parts = [(of_side / error) ** 4 / (side.size - 1) for of_side, side in zip(errors, (right, wrong), strict=True)]
    interval = t_interval(mean_of(right) - mean_of(wrong), error, df=1 / sum(parts), confidence_level=confidence_level)
    return clipped(interval, -1.0, 1.0), None
