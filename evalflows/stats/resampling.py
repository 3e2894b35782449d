"""Intervals of a figure of a whole experiment, such as macro F1: computed from all answers together, with no value for
each.

What one unit (an example, or a cluster) adds to the figure is found by leaving it out (jackknife; Tukey 1958), and the
variance also by drawing all units again with replacement (bootstrap; Efron 1979). The larger of both counts: the
bootstrap's is right for figures that are not smooth, too. The variance itself is uncertain if few units carry it. It is
that of an effective number k = (sum of squares)^2 / (sum of fourth powers) of them, and is multiplied by 1 + 2 / k, as
if two more had been drawn, one on each side. Of a difference of yes/no pairs, that is the variance of Bonett & Price
(2012).

The interval of a figure between two bounds is Wilson's for the effective sample size (Korn & Graubard 1998, for exact
intervals): its variance is proportional to the product of the distances from the bounds, as it is, nearly, for shares,
F1 and correlations. A share of errors therefore has the interval of a share, and F1 of one label has nearly that of
right / (right + wrong), of which it is a function.
"""

import math
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalflows.specs.frozen import dataclass
from evalflows.stats import means, proportions
from evalflows.stats.arrays import MAX_BLOCK_SIZE, ROUNDING, FloatArray, checked_confidence_level
from evalflows.stats.clusters import NoInterval
from evalflows.stats.paired import PairedDifference

N_RESAMPLES = 2000
"""Resamples, unless time is up before: enough for a variance that is known to 3 % (sqrt(2 / resamples))."""

IntArray = NDArray[np.intp]

Statistic = Callable[[FloatArray], FloatArray]
"""M figures, shape (r, M), NaN where one is undefined, from weights, shape (r, n): how often each of n answers counts
in each of r resamples."""

MAX_GROUPS = 200
"""Units are left out in at most so many groups. A standard error from 200 is itself known to 5 % (1 / sqrt(2 groups)),
and a slow function of many answers is called only 200 times before the first resample. The groups depend on the number
of units alone, so that two experiments have the same."""

MAX_UNDEFINED = 0.05
"""Above this share of resamples without a figure, such as F1 of a label that was not drawn, there is no interval."""

FEW_CARRY = 4.5
"""A difference whose variance fewer units carry is warned of. In simulations of losses equal to the margin, most that
pass where more than 2.5 % do (quadratic kappa near 1) are warned of, and few others."""

FEWEST = 200
"""Resamples below which their variance is not used: its standard error would be above 5 %."""

ADDED = 2.0
"""Units that are added to the effective number of those that carry the variance."""

AT_ONCE = 20
"""Resamples between two looks at the clock."""

VARIANCE = "jackknife and bootstrap"
"""Name of the variance in results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampled:
    """A figure of a sample, and the same of resamples of its units (examples, or clusters if there are any)."""

    value: float  # of the whole sample; nan if undefined
    resamples: FloatArray  # shape (R,), nan where undefined; fewer than were asked for if time was up
    left_out: FloatArray  # shape (groups,): without one unit, or without one group of units; empty with a single unit
    n: int  # units
    is_clustered: bool  # whether units have several answers


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureEstimate(proportions.IntervalEstimate):
    """A figure and its interval, in the unit of the figure."""

    value: float | None  # None if it is undefined
    standard_error: float | None  # None without an interval
    n: int  # units
    n_clusters: int | None  # None if units have one answer each
    reason_code: NoInterval | None


class _Spread(NamedTuple):
    """How a figure varies with its sample."""

    error: float  # standard error, above 0
    skewness: float  # of the figure
    df: float  # of Student's t
    carried_by: float  # the effective number of units that carry its variance


def resampled(
    statistic: Statistic,
    units: IntArray,
    *,
    n_units: int | None = None,
    n_resamples: int = 2000,
    seconds: float | None = None,
) -> list[Resampled]:
    """Return each figure of `statistic` on all answers, without each group of units, and on resamples, in that order.

    `units`, shape (n,), are numbered from 0; the answers of one are drawn and left out together. There are `n_units`,
    of which some may have no answer; default: as many as the numbers say. What is drawn depends on the number of units
    alone: resample r of two experiments on the same units has the same weights. After `seconds`, fewer resamples are
    returned; the figures without a group are always computed.
    """
    until = math.inf if seconds is None else monotonic() + seconds
    n = len(units)
    n_units = int(units.max(initial=-1)) + 1 if n_units is None else n_units
    count = min(n_units, MAX_GROUPS) if n_units > 1 else 0
    rows, groups = max(1, MAX_BLOCK_SIZE // max(n, n_units, 1)), _groups(n_units)

    def figures(of_units: FloatArray) -> FloatArray:
        return statistic(of_units if n == n_units and is_in_order else of_units.take(units, axis=1))

    is_in_order = bool((np.diff(units) == 1).all())
    value = statistic(np.ones((1, n)))[0]
    blocks = [np.arange(first, min(first + rows, count))[:, None] for first in range(0, count, rows)]
    left_out = [figures((groups != block).astype(np.float64)) for block in blocks]
    drawn: list[FloatArray] = []
    rng, rows = np.random.default_rng(n_units), rows if seconds is None else min(rows, AT_ONCE)
    for first in range(0, n_resamples if count else 0, rows):
        if monotonic() >= until:
            break
        drawn.append(figures(_drawn(rng, n_units, min(rows, n_resamples - first))))
    none = np.empty((0, len(value)))
    of_groups, of_resamples = np.concatenate([none, *left_out]), np.concatenate([none, *drawn])
    return [
        Resampled(
            value=float(value[place]),
            resamples=of_resamples[:, place],
            left_out=of_groups[:, place],
            n=n_units,
            is_clustered=n > n_units,
        )
        for place in range(len(value))
    ]


def _groups(n_units: int) -> IntArray:
    """Return the group of each unit, shape (n,): units in drawn order, since neighbours may be alike."""
    return np.random.default_rng(n_units).permutation(np.arange(n_units) % MAX_GROUPS)


def _drawn(rng: "np.random.Generator", n_units: int, n_resamples: int) -> FloatArray:
    """Return how often each unit is drawn, with replacement (Efron 1979), shape (n_resamples, n_units)."""
    places = rng.integers(0, n_units, (n_resamples, n_units)) + n_units * np.arange(n_resamples)[:, None]
    counts = np.bincount(places.ravel(), minlength=places.size)
    return counts.reshape(places.shape).astype(np.float64)


def figure_interval(
    figure: Resampled, *, bounds: tuple[float, float] = (-math.inf, math.inf), confidence_level: float = 0.95
) -> FigureEstimate:
    """Return the figure with its two-sided interval, within `bounds`, the lowest and the highest possible value.

    With two finite bounds it is the score interval (Wilson 1927) of the effective number of values (Korn & Graubard
    1998); with one, its limit, whose variance is proportional to the distance from the bound; without any, that of
    Student's t corrected for skew (Hall 1992; `stats.means`). There is none with fewer than two units, if the figure
    or too many resamples are undefined, or if no unit changes it.

    Raise ValueError for bounds not in order, a value outside them, and a confidence level not between 0 and 1.
    """
    level, is_defined = checked_confidence_level(confidence_level), math.isfinite(figure.value)
    lowest, highest = proportions.checked_bounds(bounds, figure=np.array([figure.value])) or bounds
    spread = _spread(figure, abs(figure.value))
    interval = None
    if isinstance(spread, _Spread):
        interval = proportions.clipped(_interval(figure.value, spread, lowest, highest, level), lowest, highest)
    return FigureEstimate(
        value=figure.value if is_defined else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=level,
        method=_method(figure, "wilson" if any(map(math.isfinite, bounds)) else means.CORRECTED),
        standard_error=spread.error if isinstance(spread, _Spread) else None,
        n=figure.n,
        n_clusters=figure.n if figure.is_clustered else None,
        reason=None if isinstance(spread, _Spread) else spread[0],
        reason_code=None if isinstance(spread, _Spread) else spread[1],
    )


def _method(figure: Resampled, interval: str) -> str:
    return f"{'cluster ' * figure.is_clustered}{VARIANCE}, {interval}"


def _interval(value: float, spread: _Spread, lowest: float, highest: float, level: float) -> tuple[float, float]:
    quantile = proportions.t_quantile(level, spread.df)
    width, below, above = highest - lowest, value - lowest, highest - value
    if min(below, above) <= 0 or (math.isinf(below) and math.isinf(above)):
        return _skewed(value, spread, level)
    if math.isfinite(width):
        share, error = below / width, spread.error / width
        low, high = proportions.score_interval(share, share * (1 - share) / error**2, quantile)
        return lowest + width * low, lowest + width * high
    # The ends are at distances d from the bound with (d - distance)^2 = quantile^2 error^2 d / distance.
    distance = min(below, above)
    half = (quantile * spread.error) ** 2 / distance / 2
    root = math.sqrt(half * (2 * distance + half))
    ends = distance + half - root, distance + half + root
    return (lowest + ends[0], lowest + ends[1]) if math.isinf(above) else (highest - ends[1], highest - ends[0])


def _skewed(value: float, spread: _Spread, level: float) -> tuple[float, float]:
    low, high = means.skewed_t_interval(
        np.array(value),
        np.array(spread.error),
        np.array(spread.skewness),
        df=np.array(spread.df),
        confidence_level=level,
    )
    return float(low), float(high)


def figure_difference(
    candidate: Resampled,
    baseline: Resampled,
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence_level: float = 0.95,
) -> PairedDifference:
    """Return the candidate's figure minus the baseline's, both of the same units, with interval and p-value.

    Both are those of Student's t corrected for skew (Hall 1992; `stats.means`) for the variance of the differences of
    their resamples and of what leaving out a unit changes. `bounds` are those of the figure; the interval is clipped to
    the possible differences. There is none for the reasons of `figure_interval`; if no unit changes the difference,
    and it is 0, p is 1.

    Raise ValueError for two numbers of units, and as `figure_interval` does.
    """
    level = checked_confidence_level(confidence_level)
    if candidate.n != baseline.n:
        raise ValueError(f"candidate: got {candidate.n} units, wanted as many as the baseline's {baseline.n}")
    sides = np.array([candidate.value, baseline.value])
    lowest, highest = proportions.checked_bounds(bounds, figures=sides) or bounds
    count = min(candidate.resamples.size, baseline.resamples.size)
    difference = Resampled(
        value=candidate.value - baseline.value,
        resamples=candidate.resamples[:count] - baseline.resamples[:count],
        left_out=candidate.left_out - baseline.left_out,
        n=candidate.n,
        is_clustered=candidate.is_clustered or baseline.is_clustered,
    )
    spread = _spread(difference, float(np.abs(sides).max()))
    interval, p_value, warning = None, None, None
    if isinstance(spread, _Spread):
        if spread.carried_by < FEW_CARRY:
            few, unit = f"{spread.carried_by:.0f}", "cluster" if difference.is_clustered else "example"
            carry = f"{unit} carries" if few == "1" else f"{unit}s carry"
            warning = f"about {few} {carry} the difference: it may vary more than its interval says"
        interval = proportions.clipped(_skewed(difference.value, spread, level), lowest - highest, highest - lowest)
        p_value = float(
            means.skewed_t_p_value(
                np.array(difference.value), np.array(spread.error), np.array(spread.skewness), df=np.array(spread.df)
            )
        )
    elif spread[1] == "no_spread" and not difference.value:
        p_value = 1.0
    return PairedDifference(
        candidate_mean=candidate.value if math.isfinite(candidate.value) else None,
        baseline_mean=baseline.value if math.isfinite(baseline.value) else None,
        difference=difference.value if math.isfinite(difference.value) else None,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        p_value=p_value,
        confidence_level=level,
        method=_method(difference, means.CORRECTED),
        n_pairs=difference.n,
        tested_low=interval[0] if interval else None,
        tested_high=interval[1] if interval else None,
        n_clusters=difference.n if difference.is_clustered else None,
        reason=None if isinstance(spread, _Spread) else spread[0],
        reason_code=None if isinstance(spread, _Spread) else spread[1],
        standard_error=spread.error if isinstance(spread, _Spread) else None,
        warning=warning,
    )


def _spread(figure: Resampled, scale: float) -> _Spread | tuple[str, NoInterval]:
    """Return the spread of a figure that was computed from numbers of size `scale`, or why it has no interval."""
    noun = "cluster" if figure.is_clustered else "example"
    if not math.isfinite(figure.value):
        return f"the figure is undefined for these {figure.n} {noun}s", "too_few"
    if figure.n < 2:
        return f"{figure.n or 'no'} {noun}{'' if figure.n == 1 else 's'}: an interval needs at least 2", "too_few"
    undefined = ~np.isfinite(figure.resamples)
    if not np.isfinite(figure.left_out).all() or undefined.sum() > MAX_UNDEFINED * undefined.size:
        return f"too few {noun}s: the figure is undefined without some of them", "too_few"
    count = figure.left_out.size
    parts = np.bincount(_groups(figure.n), minlength=count) / figure.n
    influences = (1 - parts) * (figure.value - figure.left_out)
    influences -= parts * influences.sum()
    drawn = figure.resamples[~undefined]
    deviation = float(drawn.std()) if drawn.size >= FEWEST else 0.0
    largest = max(float(np.abs(influences).max()), deviation)
    if largest <= ROUNDING * scale:
        return f"leaving out any {noun} changes nothing: no variation to compute an interval from", "no_spread"
    shapes = np.where(np.abs(influences) > ROUNDING * scale, influences / largest, 0.0)  # powers must not underflow
    squares, fourths = float((shapes**2).sum()), float((shapes**4).sum())
    variance = max(squares * count / (count - 1), (deviation / largest) ** 2)
    error = math.sqrt(variance * (1 + ADDED * fourths / squares**2 if squares else 1.0))
    carried_by = squares**2 / fourths if fourths else float(figure.n)
    return _Spread(largest * error, float((shapes**3).sum()) / error**3, count - 1.0, carried_by)
