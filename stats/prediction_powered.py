"""A mean from few labels and many judgements: what people would say of all, though they saw a part only."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arrays import LARGEST, FloatArray, checked_level, finite_vector, refuse_where
from stats.clusters import ROUNDING, Clustering, clustering_of, is_rounding
from stats.distributions import clipped, t_interval

LEAST_LABELS = 20
"""Labels, or clusters that have one, below which there is no interval. From here on, guarded intervals of 95 % covered
the mean in 92 % or more of simulations: of judges that err seldom and to one side only, of yes and no, wins and
differences, and of numbers with long tails. Unguarded ones did so in as few as 42 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionPowered:
    """The mean of the labels that all items would have, in the unit of the labels, and its interval."""

    mean: float | None  # None without labels
    low: float | None  # None with a reason, as are `high` and `gain`
    high: float | None
    level: float  # how often such intervals cover the true mean, 0 to 1
    method: str
    weight: float  # how far the judgements are relied on (lambda): 0 not at all, 1 as if they were labels
    gain: float | None  # how many labels without judgements would be as sure, for each label that there is
    n_labels: int
    n_judged: int  # items, with a label or without
    n_clusters: int | None  # of all items; None where no clusters were given
    reason: str | None  # why there is no interval; None if there is one


class _Sample(NamedTuple):
    """What was labelled and judged. The first n of `numbers` are the clusters of labels, then those of the rest."""

    labels: FloatArray
    judged: FloatArray  # of the labelled
    rest: FloatArray  # judged only
    weights: FloatArray  # of the labels, 1 on average
    numbers: NDArray[np.intp]


class _Parts(NamedTuple):
    """What each cluster adds to the error of the labels' mean, and to that of what the judge corrects; and both."""

    of_labels: FloatArray  # shape (G,)
    of_judge: FloatArray
    mean: float  # of the labels
    correction: float  # of the judgements: those of the labelled minus those of all

    def weight(self) -> float:
        """The slope that makes the variance smallest; below 0 a judge would be trusted against its word."""
        size = float(self.of_judge @ self.of_judge)
        return max(0.0, float(self.of_labels @ self.of_judge) / size) if size else 0.0

    def estimate(self, weight: float) -> float:
        return self.mean - weight * self.correction

    def variance(self, weight: float) -> float:
        errors = self.of_labels - weight * self.of_judge
        return float(errors @ errors)


def prediction_powered_mean(
    labels: ArrayLike,
    judged_labelled: ArrayLike,
    judged_rest: ArrayLike,
    clusters: Sequence[Hashable] | None = None,
    *,
    weights: ArrayLike | None = None,
    bounds: tuple[float, float] | None = None,
    guard: bool = True,
    level: float = 0.95,
) -> PredictionPowered:
    """The mean label of all items, of which n were labelled and N more were only judged, with a two-sided interval.

    `labels` and `judged_labelled`, shape (n,), are what people and the judge say of the same items, `judged_rest`,
    shape (N,), what the judge says of the others. The mean is that of the labels, corrected by `weight` times how far
    the judgements of the labelled lie from those of all: whatever the judge's bias, it cancels (Angelopoulos, Bates,
    Fannjiang, Jordan & Zrnic 2023). The weight, at least 0, is the one with the smallest variance, so that a judge who
    knows nothing does no harm (Angelopoulos, Duchi & Zrnic 2023, "PPI++", section 6). For a mean this is the
    regression estimator of two-phase samples (Cochran 1977, chapter 12). The interval is that of Student's t, with the
    number of labelled clusters minus 1 for degrees of freedom.

    It holds for labels of a fair sample. Where items were drawn for labelling with different chances, `weights`, shape
    (n,), are one over these. With `clusters`, n + N hashables, the labelled first, errors add up within one; None is
    alone.

    With `guard`, two labels that the judge missed are added to the interval and the weight, in the manner of Agresti &
    Coull (1998) and Bonett & Price (2012): one at each end of `bounds`, or of what the labels were, with the judgement
    at the other end. Without them, a judge that erred in none of the labels would count as infallible. The interval is
    then too wide rather than too narrow where values between the ends are frequent. It goes no further than `bounds`.
    Differences and win rates are means too: give the difference, or the points, of each example.

    No interval from fewer than LEAST_LABELS labels, or clusters that have one, or without any error.

    Raises ValueError for shapes or lengths that do not fit, a nan or inf, weights that are not above 0, labels outside
    the bounds, bounds not in order, a nan among the clusters, and a level not between 0 and 1.
    """
    level, clustering = checked_level(level), _clustering(labels, judged_rest, clusters)
    sample = _sample((labels, judged_labelled, judged_rest), weights, clustering, bounds)
    n, n_labelled = sample.labels.size, np.unique(sample.numbers[: sample.labels.size]).size
    parts = _parts(_guarded(sample, bounds) if guard else sample) if n else None
    weight = parts.weight() if parts else 0.0
    mean = _within(_parts(sample).estimate(weight), bounds) if n else None
    interval, reason = None, _too_few(n, n_labelled, clustering)
    if parts and mean is not None and not reason:
        interval, reason = _interval(parts, mean, n_labelled, bounds, level)
    return PredictionPowered(
        mean=mean,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        level=level,
        method=_method(clustering, guarded=guard, weighted=weights is not None),
        weight=weight * sample.rest.size / max(1, sample.numbers.size),
        gain=parts.variance(0.0) / parts.variance(weight) if parts and interval else None,
        n_labels=n,
        n_judged=sample.numbers.size,
        n_clusters=None if clusters is None else clustering.count,
        reason=reason,
    )


def _clustering(labels: ArrayLike, rest: ArrayLike, clusters: Sequence[Hashable] | None) -> Clustering:
    n = sum(finite_vector(name, values).size for name, values in (("labels", labels), ("judged_rest", rest)))
    return clustering_of(clusters, n)


def _sample(
    given: tuple[ArrayLike, ArrayLike, ArrayLike],
    weights: ArrayLike | None,
    clustering: Clustering,
    bounds: tuple[float, float] | None,
) -> _Sample:
    """What was given, checked."""
    names = ("labels", "judged_labelled", "judged_rest")
    labels, judged, rest = (finite_vector(name, values) for name, values in zip(names, given, strict=True))
    if judged.size != labels.size:
        raise ValueError(f"judged_labelled: got {judged.size}, wanted as many as the {labels.size} labels")
    if bounds is not None:
        low, high = bounds
        if not -LARGEST <= low < high <= LARGEST:
            raise ValueError(f"bounds: got {low!r} to {high!r}, wanted two finite numbers, the lower one first")
        refuse_where("labels", labels, (labels < low) | (labels > high), f"{low} to {high}")
    return _Sample(labels, judged, rest, _weights(weights, labels.size), clustering.numbers)


def _weights(weights: ArrayLike | None, n: int) -> FloatArray:
    given = np.ones(n) if weights is None else finite_vector("weights", weights)
    if given.size != n:
        raise ValueError(f"weights: got {given.size}, wanted one for each of the {n} labels")
    refuse_where("weights", given, given <= 0, "more than 0")
    return np.asarray(given / given.mean()) if n else given


def _guarded(sample: _Sample, bounds: tuple[float, float] | None) -> _Sample:
    """The same with two labels more, at either end, that the judge has at the other one; each is a cluster."""
    ends = bounds or (float(sample.labels.min()), float(sample.labels.max()))
    every, n = np.concatenate([sample.judged, sample.rest]), sample.labels.size
    return _Sample(
        np.concatenate([sample.labels, ends]),
        np.concatenate([sample.judged, [every.max(), every.min()]]),
        sample.rest,
        np.concatenate([sample.weights, [1.0, 1.0]]),
        np.insert(sample.numbers, n, sample.numbers.max() + np.array([1, 2])),
    )


def _parts(sample: _Sample) -> _Parts:
    share = sample.weights / sample.weights.sum()
    every = np.concatenate([sample.judged, sample.rest])
    mean, of_labelled, of_all = float(share @ sample.labels), float(share @ sample.judged), float(every.mean())
    nothing = np.zeros(sample.rest.size)
    of_labels = np.concatenate([share * (sample.labels - mean), nothing])
    of_judge = np.concatenate([share * (sample.judged - of_labelled), nothing]) - (every - of_all) / every.size
    # All judged were labelled: what is left to correct is rounding, of which no slope is to be made.
    of_judge[np.abs(of_judge) <= ROUNDING * share.max() * np.abs(every).max()] = 0.0
    first, second = (_sums(sample.numbers, each) for each in (of_labels, of_judge))
    return _Parts(first, second, mean, of_labelled - of_all)


def _sums(numbers: NDArray[np.intp], values: FloatArray) -> FloatArray:
    return np.bincount(numbers, weights=values).astype(np.float64)


def _interval(
    parts: _Parts, mean: float, n_labelled: int, bounds: tuple[float, float] | None, level: float
) -> tuple[tuple[float, float] | None, str | None]:
    """The interval, or why there is none. The guard moves its centre, but not so far that the mean is outside."""
    weight = parts.weight()
    error = math.sqrt(parts.variance(weight) * n_labelled / (n_labelled - 1))
    if is_rounding(error, abs(parts.mean) or 1.0):
        return None, "neither labels nor judgements vary: no spread to reckon an interval from"
    low, high = t_interval(parts.estimate(weight), error, df=n_labelled - 1, level=level)
    low, high = clipped((low, high), float(bounds[0]), float(bounds[1])) if bounds else (low, high)
    return (min(low, mean), max(high, mean)), None


def _within(mean: float, bounds: tuple[float, float] | None) -> float:
    return mean if bounds is None else float(min(max(mean, bounds[0]), bounds[1]))


def _too_few(n: int, n_labelled: int, clustering: Clustering) -> str | None:
    if n < LEAST_LABELS:
        return f"{n or 'no'} label{'' if n == 1 else 's'}: an interval needs at least {LEAST_LABELS}"
    if n_labelled < LEAST_LABELS:
        return f"{n} labels in {n_labelled} of {clustering.count} clusters: an interval needs {LEAST_LABELS} of them"
    return None


def _method(clustering: Clustering, *, guarded: bool, weighted: bool) -> str:
    said = "ppi++" + (", guarded" if guarded else "") + (", weighted" if weighted else "")
    return f"{said}; {'t' if clustering.all_alone else 'cluster-robust t'}"
