"""Intervals for a mean that hold however often one looks: a gate may stop at the first that tells."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stats.arrays import LARGEST, FloatArray, checked_level, finite_vector, mean_of, refuse_where
from stats.clusters import ROUNDING, clustering_of

STAKES = (1 / 16, 1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
"""What the gamblers stake each time, as parts of what can be lost. Small stakes find small differences late, large ones
those without exceptions early. Fixed before any data, since bets must not be."""

CLOSE = 1e-5
"""How near the ends of a betting interval are reckoned, as a part of the bounds' width. They are rounded outwards."""

SMALLEST_N = 100
"""Unbounded differences have no interval before. Of 4,000 runs at level 0.95 without a difference, looked at after each
one from here to 400 (2,000), so many find one: normal 1.5 % (2.9 %), Laplace 1.2 % (2.9 %), Student's t with 3 degrees
of freedom 1.2 % (3.2 %), exponential 3.6 % (4.4 %); but of a skewness of 6, log-normal, 5.9 % (8.9 %)."""

SHARPEST_N = 400
"""Where the interval for unbounded differences is at its tightest against others of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceSequence:
    """Intervals for one mean, in the unit of the differences: all of them hold it, in `level` of all such sequences."""

    n: tuple[int, ...]  # the looks: how many differences each interval is of
    low: tuple[float | None, ...]  # of each look; None with a reason, as is `high`
    high: tuple[float | None, ...]
    estimate: tuple[float | None, ...]  # the mean so far; None without differences
    level: float  # how often all intervals together cover the true mean, 0 to 1
    method: str  # "betting" or "asymptotic gaussian mixture"
    reason: str | None  # why a look, the last such, has no interval; None if all have


class ClusterValues(NamedTuple):
    """One value a cluster, and by how much wider their bounds are than those of the differences."""

    values: FloatArray  # shape (G,)
    bounds_factor: float


def confidence_sequence(
    differences: ArrayLike,
    *,
    bounds: tuple[float, float] | None,
    level: float = 0.95,
    looks: Sequence[int] | None = None,
) -> ConfidenceSequence:
    """Intervals for the mean of `differences`, shape (n,), after each of `looks`, that all hold it together.

    `looks` are rising counts from 1 to n, by default n alone. Whoever stops when an interval tells errs in 1 - `level`
    of runs at most, however often and for whatever reason they look; an interval does not depend on the other looks.
    The differences are in an order that has nothing to do with what they are (the dataset's, not that in which answers
    came) and count as independent with one mean. Each interval is the intersection of those after every difference so
    far; it need not hold the `estimate`. Where none is left, as when the mean changed on the way, there is none.

    With `bounds`, which all differences keep, the intervals are exact at any n: for each mean that might be true, two
    gamblers bet that the differences are above it and below it, and it is refuted when one has made 2 / (1 - level) of
    1 (hedged capital: Waudby-Smith & Ramdas 2024), each having divided his money among fixed STAKES (their diversified
    Kelly bettor). Looking every 20 up to 400, a true difference of 0.1 is found in 78 % of 4,000 runs where 30 % of
    pairs of yes and no differ (with their predictable plug-in bets 69 %, with their empirical Bernstein bound 62 %), in
    85 % where differences are spread evenly over 1.8 (76 %, 68 %), and without a difference, one is in 1 to 3 %.

    Without bounds they are asymptotic: Robbins' normal mixture with the sd so far (Waudby-Smith, Arbour, Sinha, Kennedy
    & Ramdas 2024, theorem 2.2), tightest about SHARPEST_N, from SMALLEST_N on.

    Raises ValueError for a difference that is not finite or not within the bounds, a shape other than (n,), bounds that
    are not finite and in order, looks that do not rise or are not from 1 to n, and a level not between 0 and 1.
    """
    level, values = checked_level(level), finite_vector("differences", differences)
    counts = _checked_looks(looks, values.size)
    if bounds is None:
        found = _asymptotic(values, counts, 1 - level)
    else:
        found = _betting(_within(values, *bounds), *bounds, counts, 1 - level)
    intervals = [None if isinstance(one, str) else one for one in found]
    return ConfidenceSequence(
        n=tuple(counts.tolist()),
        low=tuple(None if one is None else one[0] for one in intervals),
        high=tuple(None if one is None else one[1] for one in intervals),
        estimate=tuple(mean_of(values[:count]) if count else None for count in counts),
        level=level,
        method="asymptotic gaussian mixture" if bounds is None else "betting",
        reason=next((one for one in reversed(found) if isinstance(one, str)), None),
    )


def cluster_values(
    differences: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    average_size: float,
    largest_size: int | None = None,
) -> ClusterValues:
    """One value for each cluster, in order of first appearance: its sum of differences by the average cluster size.

    Their mean is that of the differences, the clusters being drawn as they are in the whole dataset, whose average size
    `average_size` is; each has to be there in full. A sum may be larger than a difference by the size of its cluster:
    the bounds of the differences, 0 within them, times `bounds_factor` are those of the values. That is
    `largest_size` / `average_size`, and who looks early has to give the dataset's largest, since bounds must not change
    on the way; by default it is the largest that is there. A difference whose cluster is None is alone.

    Raises ValueError for a difference that is not finite, another number of clusters, a nan among them, an average
    below 1, and a cluster larger than the largest.
    """
    values = finite_vector("differences", differences)
    clustering = clustering_of(clusters, values.size)
    if not 1 <= average_size < math.inf:
        raise ValueError(f"average_size: got {average_size!r}, wanted a finite number of at least 1")
    seen = int(np.bincount(clustering.numbers).max(initial=0))
    largest = seen if largest_size is None else largest_size
    if seen > largest:
        raise ValueError(f"largest_size: got {largest_size!r}, wanted at least the {seen} of a cluster that is there")
    sums = np.bincount(clustering.numbers, weights=values, minlength=clustering.count)
    return ClusterValues(values=sums / average_size, bounds_factor=max(largest / average_size, 1.0))


def _checked_looks(looks: Sequence[int] | None, n: int) -> NDArray[np.intp]:
    counts = np.array([n] if looks is None else looks, dtype=np.intp)
    if looks is not None and counts.size and not (counts[0] >= 1 and counts[-1] <= n and np.all(np.diff(counts) > 0)):
        raise ValueError(f"looks: got {counts.tolist()!r}, wanted counts that rise from at least 1 to at most {n}")
    return counts


def _within(values: FloatArray, lowest: float, highest: float) -> FloatArray:
    """The values as parts of the way between their bounds, 0 to 1."""
    if not -LARGEST <= lowest < highest <= LARGEST:
        raise ValueError(f"bounds: got {lowest!r} to {highest!r}, wanted two finite numbers, the lower one first")
    refuse_where("differences", values, (values < lowest) | (values > highest), f"{lowest} to {highest}")
    return np.clip((values - lowest) / (highest - lowest), 0.0, 1.0)


def _betting(
    parts: FloatArray, lowest: float, highest: float, counts: NDArray[np.intp], alpha: float
) -> list[tuple[float, float] | str]:
    """An interval for each look, or why there is none."""
    if not parts.size:
        return ["no differences: an interval needs at least 1" for _ in counts]
    width = highest - lowest
    lows, highs = (
        lowest + width * _refuted(parts, counts, alpha),
        highest - width * _refuted(1 - parts, counts, alpha),
    )
    return [_interval(low, high) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]


def _interval(low: float, high: float) -> tuple[float, float] | str:
    return (low, high) if low <= high else "the intervals have no number in common: the mean seems to have changed"


def _refuted(parts: FloatArray, counts: NDArray[np.intp], alpha: float) -> FloatArray:
    """The largest mean, 0 to 1, that betting on more has refuted by each look; 0 where none.

    Capital falls with the mean bet against, so that all smaller ones are refuted as well. By bisection, of all looks at
    once: a mean tried for one says of each whether it was refuted by then.
    """
    refuted, open_from = np.zeros(counts.size), np.ones(counts.size)
    while counts.size and (gaps := open_from - refuted).max() > CLOSE:
        widest = int(gaps.argmax())
        mean = float(refuted[widest] + open_from[widest]) / 2
        unsettled = (refuted < mean) & (mean < open_from)
        when = _refuted_after(parts[: counts[unsettled].max()], mean, 2 / alpha)
        refuted[unsettled & (counts >= when)] = mean
        open_from[unsettled & (counts < when)] = mean
    return refuted


def _refuted_after(parts: FloatArray, mean: float, enough: float) -> float:
    """After how many the capital of who bets on more than `mean` first is `enough`; inf if it never is."""
    logs = np.cumsum(np.log1p(np.multiply.outer(STAKES, parts / mean - 1)), axis=1)
    reached = np.exp(np.minimum(logs, 700.0)).mean(axis=0) >= enough  # beyond 700, exp would overflow
    return float(reached.argmax()) + 1 if reached.any() else math.inf


def _asymptotic(values: FloatArray, counts: NDArray[np.intp], alpha: float) -> list[tuple[float, float] | str]:
    """An interval for each look, or why there is none."""
    means, errors = _running(values)
    t = np.arange(1, values.size + 1)
    halves = np.where(errors > 0, errors * _margins(t, alpha), np.inf)
    halves[: SMALLEST_N - 1] = np.inf
    lows, highs = np.maximum.accumulate(means - halves), np.minimum.accumulate(means + halves)
    return [_asymptotic_interval(int(n), lows, highs) for n in counts]


def _asymptotic_interval(n: int, lows: FloatArray, highs: FloatArray) -> tuple[float, float] | str:
    if n < SMALLEST_N:
        return f"{n or 'no'} difference{'' if n == 1 else 's'}: without bounds, an interval needs at least {SMALLEST_N}"
    if math.isinf(lows[n - 1]):
        return f"all {n} differences are equal: no spread to reckon an interval from"
    return _interval(float(lows[n - 1]), float(highs[n - 1]))


def _running(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean and the standard deviation of the first 1, 2, ... values; the latter 0 where it is rounding."""
    first = values[:1]
    scale = max(float(np.abs(values - first).max(initial=0.0)), float(np.finfo(np.float64).tiny))
    shifted, t = (values - first) / scale, np.arange(1, values.size + 1)
    means = np.cumsum(shifted) / t
    squares = np.maximum(np.cumsum(shifted**2) - t * means**2, 0.0) / np.maximum(t - 1, 1)
    deviations = scale * np.sqrt(squares)
    return first + scale * means, np.where(deviations > ROUNDING * np.abs(values).max(initial=0.0), deviations, 0.0)


def _margins(t: NDArray[np.intp], alpha: float) -> FloatArray:
    """Half the interval after t differences, in standard deviations."""
    strength = -2 * math.log(alpha)
    rho = (strength + math.log(strength + 1)) / SHARPEST_N  # rho squared
    return np.asarray(np.sqrt((t * rho + 1) / (t**2 * rho) * (np.log(t * rho + 1) + strength)), dtype=np.float64)
