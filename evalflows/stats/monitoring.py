"""Watching a mean over windows of time: its interval from sums, and a detector of lasting changes."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import ROUNDING, FloatArray, checked_confidence_level
from evalflows.stats.means import MeanEstimate
from evalflows.stats.proportions import (
    beta_point,
    clipped,
    constant_interval,
    log_normal_cdf,
    normal_quantile,
    t_interval,
    t_quantile,
)

EFFECT = 0.15
"""Scale of the effects that the change detector bets on, in standard deviations of one value: a typical change of a
yes/no metric near 80 % is then 6 points. A wrong scale costs delay, not false alarms."""

EFFECT_BETWEEN = 2.0
"""The same scale for windows that vary, in standard deviations of their true means; both variances are added."""

MIN_BASELINE = 5
"""Windows before a possible change that the detector needs, to estimate how much windows vary beyond their samples."""

BETWEEN = np.array([0.0, *2.0 ** np.arange(-1, 12, 2)])
"""Variances of the windows' true means that the change detector counts as possible, each divided by the variance that
their samples explain. Before the windows are seen, 0 is as likely as all others together."""

ANGLE_VARIANCE = 0.25
"""The variance of asin(sqrt(share)), times the number of values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSums:
    """Sums over the values of one window, of which each cluster (a session) is one sampling unit.

    S and N are the sums of weights times values, and of weights, of one cluster; weights are inverse sampling rates.
    """

    n: int  # values
    clusters: int
    weight: float  # sum of N
    total: float  # sum of S
    total_squares: float  # sum of S * S
    products: float  # sum of S * N
    weight_squares: float  # sum of N * N
    lowest: float | None  # value; None without values
    highest: float | None
    is_binary: bool  # all values are 0 or 1

    @property
    def mean(self) -> float | None:
        return self.total / self.weight if self.n else None


def window_mean(
    sums: WindowSums, *, confidence_level: float = 0.95, bounds: tuple[float, float] | None = None
) -> MeanEstimate:
    """Return the mean of a window with a two-sided interval, from its sums alone.

    The standard error is cluster-robust with the correction G / (G - 1), as in `stats.clusters.standard_error`
    (Cameron & Miller 2015), of the ratio S / N, so that values may have weights. For 0 and 1 the interval is that of
    Clopper & Pearson (1934) for the effective sample size (Korn & Graubard 1998): rules look at many windows, each at a
    high level, and at one error in a thousand Wilson's interval errs half as often again as stated, on one side. For
    others it is Student's t. It is clipped to `bounds`. With clusters, the degrees of freedom are those of as many
    clusters of equal size as tell as much (Kish 1965), less one.
    If the values do not vary, the interval follows from the bounds (`stats.proportions.constant_interval`). There is
    none for fewer than two clusters.
    """
    confidence_level, mean = checked_confidence_level(confidence_level), sums.mean
    kind = "cluster-robust " if sums.clusters < sums.n else ""
    error = mean_standard_error(sums)
    interval, reason = None, None
    if mean is None or sums.clusters < 2:
        reason = "too few values: an interval needs at least 2, in 2 clusters"
    elif sums.is_binary:
        interval = _exact_interval(sums, min(max(mean, 0.0), 1.0), error, confidence_level)
    elif error:
        interval = t_interval(mean, error, df=_degrees_of_freedom(sums), confidence_level=confidence_level)
    else:
        interval = constant_interval(mean, sums.clusters, bounds, confidence_level=confidence_level)
        reason = None if interval else "all values are equal, and no range is declared"
    if interval and bounds:
        interval = clipped(interval, *bounds)
    return MeanEstimate(
        mean=mean,
        low=interval[0] if interval else None,
        high=interval[1] if interval else None,
        confidence_level=confidence_level,
        method=f"{kind}exact" if sums.is_binary else f"{kind}t",
        n=sums.n,
        n_clusters=sums.clusters,
        reason=reason,
        reason_code=None if reason is None else "too_few" if sums.clusters < 2 else "no_spread",
        standard_error=error if interval else None,
    )


def mean_standard_error(sums: WindowSums) -> float:
    """Return the cluster-robust standard error of the mean; 0.0 if it is only rounding, or cannot be estimated."""
    mean = sums.mean
    if mean is None or sums.clusters < 2:
        return 0.0
    squares = sums.total_squares - 2 * mean * sums.products + mean * mean * sums.weight_squares
    if squares <= ROUNDING * sums.total_squares or sums.lowest == sums.highest:
        return 0.0
    return math.sqrt(squares * sums.clusters / (sums.clusters - 1)) / sums.weight


def _degrees_of_freedom(sums: WindowSums) -> float:
    return max(1.0, sums.weight**2 / sums.weight_squares - 1)


def _exact_interval(sums: WindowSums, share: float, error: float, confidence_level: float) -> tuple[float, float]:
    n, tail = _effective_size(sums, share, error), (1 - confidence_level) / 2
    if sums.clusters < sums.n:
        n *= (normal_quantile(confidence_level) / t_quantile(confidence_level, _degrees_of_freedom(sums))) ** 2
    yes = share * n
    low = beta_point(yes, n - yes + 1, tail) if share > 0 else 0.0
    high = beta_point(yes + 1, n - yes, 1 - tail) if share < 1 else 1.0
    return low, high


def _effective_size(sums: WindowSums, share: float, error: float) -> float:
    """Return how many independent 0 and 1 have the same standard error; the number of clusters if none vary."""
    if sums.clusters == sums.n:
        return sums.weight**2 / sums.weight_squares
    effective = share * (1 - share) / error**2 if error else float(sums.clusters)
    return min(float(sums.n), effective)


@dataclass(frozen=True, slots=True)
class Variation:
    """By how much true means vary where nothing has changed."""

    sd: float = 0.0
    windows: int = 0  # of which it is estimated

    def half_width(self, confidence_level: float) -> float:
        return t_quantile(confidence_level, self.windows - 1) * self.sd if self.sd else 0.0


def variation_of(means: ArrayLike, sizes: ArrayLike, variances: ArrayLike, width: float | None = None) -> Variation:
    """Return by how much the true means of windows vary: 0.0 if chance explains them (DerSimonian & Laird 1986).

    The arguments are those of `change_evidence`. 0.0 for fewer than MIN_BASELINE windows, which tell nothing.
    """
    x, n, u = (np.asarray(array, dtype=np.float64) for array in (means, sizes, variances))
    if x.size < MIN_BASELINE or not (value_variance := _value_variance(n, u, width)) > 0:
        return Variation()
    total = float(n.sum())
    excess = float(n @ (x - n @ x / total) ** 2) / value_variance - (x.size - 1)
    variance = max(0.0, value_variance * excess / (total - float(n @ n) / total))
    return Variation(math.sqrt(variance), x.size)


def difference_interval(
    window: MeanEstimate, reference: MeanEstimate, variation: Variation, windows: int
) -> tuple[float, float] | None:
    """Return the interval of a mean minus an independent one, at their confidence level; None if one has none.

    Method of variance estimates recovery (Zou & Donner 2008); for Wilson's intervals it is Newcombe's (1998) method 10.
    `variation` is that of a window, and `windows` is how many of both means are of windows. Its share of the interval
    is Student's t: what is estimated from a fortnight may be larger.
    """
    ends = (window.mean, window.low, window.high, reference.mean, reference.low, reference.high)
    mean, low, high, other, other_low, other_high = (math.nan if end is None else end for end in ends)
    if any(end is None for end in ends):
        return None
    difference, varied = mean - other, math.sqrt(windows) * variation.half_width(window.confidence_level)
    return (
        difference - math.hypot(mean - low, other_high - other, varied),
        difference + math.hypot(high - mean, other - other_low, varied),
    )


def _value_variance(n: FloatArray, u: FloatArray, width: float | None) -> float:
    """Return the variance of a value, with one value at each end of the range added if it is known."""
    total = float(n.sum())
    if width is None:
        return float(n @ u) / total
    return (float(n @ u) + width**2 / 2) / (total + 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvidence:
    """The change detector's evidence after each window, shape (windows,). nan where it is still learning."""

    e_values: FloatArray
    starts: FloatArray  # place of the first window of the most likely change
    levels: FloatArray  # mean since then
    level_errors: FloatArray  # their standard errors
    baselines: FloatArray  # mean before


def change_evidence(
    means: Sequence[float] | FloatArray,
    sizes: Sequence[float] | FloatArray,
    variances: Sequence[float] | FloatArray,
    *,
    horizon: int,
    first: int = 0,
    wanted: int = 0,
    margin: float = 0.0,
    width: float | None = None,
    yes_no: bool = False,
    varies: bool = True,
) -> ChangeEvidence:
    """Return the evidence after each window that the mean has fallen by more than `margin` and stayed there.

    `means`, `sizes` (numbers of values) and `variances` (of one value: size times the squared standard error) have
    shape (windows,), in order of time. Changes may begin at the windows from `first` on; each is compared with at most
    `horizon` windows before it, and is followed for at most `horizon` windows. The evidence is computed for the windows
    from `wanted` on. `width` is that of the values' range, if it is known. Without `varies`, the true means of windows
    are taken to be equal where nothing has changed. With `yes_no`, the means are shares of yes, 0 to 1.

    The detector is a mixture e-CUSUM (Shin, Ramdas & Rinaldo 2024, "E-detectors"): the maximum, over the windows at
    which a change may have begun, of an e-process. An alarm at the first e-value of at least c has an average run
    length of at least c windows: the sum of the e-processes, which is not smaller than their maximum, grows by at most
    1 a window in expectation. So c windows without a change raise one false alarm at most, on average, although the
    detector looks after every window.

    The e-process of one start is the likelihood ratio of the difference D between the means since and before, with
    variance V: both means are estimated, so V has both their variances, and the ratio is that of the maximal invariant
    of an unknown level (Perez-Ortiz, Lardy, de Heide & Gruenwald 2024). The effect has a half-normal prior. Means of
    windows count as normal. The variance of a value is that of the windows before, with one value at each end of the
    range added, so that it is never 0. Windows may vary by more than their samples explain, as weekdays do: both
    likelihoods are means over BETWEEN, so that a variance that few windows tell little about weakens the evidence, and
    the bound above holds on average over that prior.

    Shares near 0 and 1 are not normal: their distribution has a tail on the side of the alarm, and its variance depends
    on the mean that is sought. They are compared as angles, asin(sqrt(share)), whose variance is nearly 1 / (4 n + 2)
    for all shares (Anscombe 1948), and at most that for rare ones; n is divided by the design effect of the windows so
    far. The simulation has shares of 50 to 99.9 %.
    """
    x, n, u = (np.asarray(array, dtype=np.float64) for array in (means, sizes, variances))
    shares, counts = x, n
    if yes_no:
        x, n = _angles(shares, counts, u)
        u, width = np.full(x.size, ANGLE_VARIANCE), None
    found, most = np.full((5, x.size), np.nan), np.full(x.size, -np.inf)
    for start in range(max(first, MIN_BASELINE, wanted - horizon + 1), x.size):
        before, since = slice(max(0, start - horizon), start), slice(start, min(start + horizon, x.size))
        looked, passed = slice(max(start, wanted), since.stop), max(0, wanted - start)
        value_variance = _value_variance(n[before], u[before], width)
        if not value_variance > 0:
            continue
        between = value_variance / n[before].mean() * (BETWEEN if varies else BETWEEN[:1])
        then = _Weighed.of(x[before], n[before], value_variance, between).after(slice(-1, None))
        now = _Weighed.of(x[since], n[since], value_variance, between).after(slice(passed, None))
        allowed = _angle_margin(then.means, margin) if yes_no else margin
        effect_variance = EFFECT**2 * value_variance + (EFFECT_BETWEEN**2 * between)[:, None]
        log_e, chances = _log_evidence(then, now, allowed, effect_variance)
        level, baseline = ((chances * side.means).sum(axis=0) for side in (now, then))
        error = np.sqrt((chances / now.weights).sum(axis=0))
        if yes_no:
            error *= np.sin(2 * level.clip(0.0, math.pi / 2))  # the derivative of sin(angle) ** 2
            level = (np.cumsum(shares[since] * counts[since]) / np.cumsum(counts[since]))[passed:]
            baseline = np.full(level.size, shares[before] @ counts[before] / counts[before].sum())
        better = log_e > most[looked]
        most[looked] = np.where(better, log_e, most[looked])
        of_start = np.exp(np.minimum(log_e, 700.0)), np.full(level.size, start), level, error, baseline
        found[:, looked] = np.where(better, np.stack(of_start), found[:, looked])
    e_values, starts, levels, level_errors, baselines = found
    return ChangeEvidence(
        e_values=e_values, starts=starts, levels=levels, level_errors=level_errors, baselines=baselines
    )


def _angles(shares: FloatArray, n: FloatArray, variances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the angles of shares of yes (Anscombe 1948), and n of each, so that the variance is ANGLE_VARIANCE / n."""
    total, yes = np.cumsum(n), np.cumsum(n * shares)
    independent = yes * (total - yes) / total
    effect = np.cumsum(n * variances) / np.where(independent > 0, independent, 1.0)
    effective = n / np.where(independent > 0, np.maximum(effect, 1.0), 1.0)
    return np.arcsin(np.sqrt((effective * shares + 0.375) / (effective + 0.75))), effective + 0.5


def _angle_margin(level: FloatArray, margin: float) -> FloatArray:
    """Return the angle between a level, itself an angle, and the share that is smaller by `margin`."""
    return level - np.arcsin(np.sqrt(np.maximum(np.sin(level) ** 2 - margin, 0.0)))


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The windows from one on, up to each of the later ones, for each variance between windows.

    Shape (variances, windows).
    """

    weights: FloatArray  # the precision of the mean
    means: FloatArray
    log_likelihoods: FloatArray  # of the windows' distances from that mean, up to a constant

    @classmethod
    def of(cls, x: FloatArray, n: FloatArray, value_variance: float, between: FloatArray) -> "_Weighed":
        precision = 1 / (value_variance / n + between[:, None])
        distance = x - x[0]  # squares of the means themselves would cancel
        weights, sums, squares = (np.cumsum(precision * power, axis=1) for power in (1.0, distance, distance**2))
        spread = np.maximum(squares - sums**2 / weights, 0.0)
        return cls(weights, x[0] + sums / weights, (np.cumsum(np.log(precision), axis=1) - spread) / 2)

    def after(self, windows: slice) -> "_Weighed":
        return _Weighed(*(array[:, windows] for array in (self.weights, self.means, self.log_likelihoods)))


def _log_evidence(
    before: _Weighed, since: _Weighed, allowed: FloatArray | float, effect_variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the log evidence for a fall after each window since, and how likely each variance between windows is."""
    difference, variance = since.means - before.means + allowed, 1 / before.weights + 1 / since.weights
    unchanged = since.log_likelihoods + before.log_likelihoods
    unchanged[0] += math.log(max(1, len(unchanged) - 1))
    unchanged = unchanged - (np.log(before.weights + since.weights) + difference**2 / variance) / 2
    fallen = unchanged + _log_likelihood_ratio(difference, variance, effect_variance)
    total = np.logaddexp.reduce(fallen)
    return total - np.logaddexp.reduce(unchanged), np.exp(fallen - total)


def _log_likelihood_ratio(difference: FloatArray, variance: FloatArray, effect_variance: FloatArray) -> FloatArray:
    """Return the log likelihood ratio of a fall, with a half-normal prior, against no difference."""
    total = variance + effect_variance
    ratio = difference / np.sqrt(variance * total) * np.sqrt(effect_variance)
    return np.asarray(
        math.log(2) + np.log(variance / total) / 2 + ratio**2 / 2 + log_normal_cdf(-ratio), dtype=np.float64
    )
