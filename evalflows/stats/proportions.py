"""Intervals and tests for proportions and shares of pairs won, one-sided p-values against a threshold, and the
distributions that they need."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import FloatArray, checked_confidence_level, finite_vector, refuse_where

HALVINGS = 45
"""Bisection steps on a distance of at most 2; the remaining error is rounding."""

SMALLEST_ALPHA = 2.0**-53
"""The smallest alpha that is tried: no float lies between 1 - SMALLEST_ALPHA and 1."""

STEPS = 120
"""Most steps for alpha within a factor of 2; a third of them are bisections."""

PRECISION = 1e-10
"""Relative error of alpha."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalEstimate:
    """An interval of some figure."""

    low: float | None  # None with a reason, like `high`
    high: float | None
    confidence_level: float  # of the interval, between 0 and 1
    method: str
    reason: str | None  # why the figure or its interval is missing; None if both are present


def normal_quantile(confidence_level: float) -> float:
    """Return z such that a standard normal variable lies within -z to z with probability `confidence_level`."""
    return -float(special_functions().ndtri((1 - confidence_level) / 2))


def log_normal_cdf(values: FloatArray) -> FloatArray:
    """Return the logarithms of the probabilities that a standard normal variable is below `values`."""
    return np.asarray(special_functions().log_ndtr(values), dtype=np.float64)


def t_quantile(confidence_level: float, df: float) -> float:
    """Return t such that Student's t with `df` degrees of freedom lies within -t to t with that probability."""
    return float(t_quantiles(confidence_level, np.array(df)))


def t_quantiles(confidence_level: float, df: FloatArray) -> FloatArray:
    """Return the same for each of several degrees of freedom."""
    return -np.asarray(special_functions().stdtrit(df, (1 - confidence_level) / 2), dtype=np.float64)


def t_interval(centre: float, standard_error: float, *, df: float, confidence_level: float) -> tuple[float, float]:
    """Return the interval of Student's t around `centre` (Student 1908), in its unit."""
    half = t_quantile(confidence_level, df) * standard_error
    return centre - half, centre + half


def t_p_value(centre: float, standard_error: float, *, df: float) -> float:
    """Return the two-sided p-value of the hypothesis that the true value is 0. The standard error is not 0."""
    return 2 * float(special_functions().stdtr(df, -abs(centre) / standard_error))


def t_p_values(ratios: FloatArray, df: float | FloatArray) -> FloatArray:
    """Return the two-sided p-values of estimates that are `ratios`, of any shape, of their standard errors."""
    return np.asarray(2 * special_functions().stdtr(df, -np.abs(ratios)), dtype=np.float64)


def beta_point(first: float, second: float, probability: float) -> float:
    """Return the quantile of a beta distribution with these two parameters, both above 0."""
    return float(special_functions().betaincinv(first, second, probability))


def clipped(interval: tuple[float, float], lowest: float, highest: float) -> tuple[float, float]:
    """Clip an interval to the possible values. Its coverage does not change."""
    return max(interval[0], lowest), min(interval[1], highest)


def checked_bounds(bounds: tuple[float, float] | None, **values: FloatArray) -> tuple[float, float] | None:
    """Return the bounds of possible values as floats, either possibly infinite; None if unknown.

    Raise ValueError if they are not in order, or a value lies outside; the keywords name the values in messages.
    """
    if bounds is None:
        return None
    lowest, highest = (float(end) for end in bounds)
    if not lowest < highest:
        raise ValueError(f"bounds: got {lowest!r} to {highest!r}, wanted two numbers, the lower one first")
    for name, array in values.items():
        refuse_where(name, array, (array < lowest) | (array > highest), f"{lowest} to {highest}, its bounds")
    return lowest, highest


_loading = threading.Lock()


class _Bare(ModuleType):
    """scipy.special while its functions are loaded from it; to other threads it is all of it."""

    def __getattr__(self, name: str) -> Any:
        if threading.get_ident() == self.__dict__["loads"]:
            raise AttributeError(name)
        with _loading:  # then it is no longer in the way
            return getattr(import_module(self.__name__), name)


@cache
def special_functions() -> Any:
    """Return the functions of scipy.special for numpy's arrays, when they are first needed.

    The rest of scipy.special, such as the same functions for other arrays and their documents, takes 0.1 s to load.
    """
    whole = "scipy.special"
    with _loading:
        if whole in sys.modules:
            return import_module(whole)  # another thread may be loading it
        import scipy  # type: ignore[import-untyped, unused-ignore]

        bare = _Bare(whole)
        bare.__dict__.update(loads=threading.get_ident(), __path__=[f"{scipy.__path__[0]}/special"])
        sys.modules[whole] = bare
        try:
            return import_module(f"{whole}._ufuncs")
        finally:
            del sys.modules[whole]


def wilson_interval(yes: int, n: int, *, confidence_level: float) -> tuple[float, float]:
    """Return the score interval (Wilson 1927), within 0 to 1, of the proportion with `yes` of n, n at least 1."""
    return score_interval(yes / n, n, normal_quantile(confidence_level))


def score_interval(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's interval, within 0 to 1, of `share` of n values, with the given normal or t quantile.

    n is above 0 and need not be a whole number, so that it can be an effective sample size.
    """
    square = quantile * quantile
    centre = (n * share + square / 2) / (n + square)
    half = quantile * math.sqrt(n * share * (1 - share) + square / 4) / (n + square)
    low, high = clipped((centre - half, centre + half), 0.0, 1.0)
    return min(low, share), max(high, share)  # at 0 of n and n of n the bound is the share, up to rounding


def clopper_pearson_interval(yes: float, n: float, *, confidence_level: float) -> tuple[float, float]:
    """Return the exact interval (Clopper & Pearson 1934), within 0 to 1, of the proportion with `yes` of n, at least 1;
    whole numbers, except in planning.

    Each end has an error rate of at most (1 - level) / 2 for every true proportion; the interval is wider for it.
    """
    tail = (1 - confidence_level) / 2
    low = beta_point(yes, n - yes + 1, tail) if yes else 0.0
    high = beta_point(yes + 1, n - yes, 1 - tail) if yes < n else 1.0
    return low, high


def largest_missed_share(n: int, *, confidence_level: float) -> float:
    """Return the largest proportion of other values, 0 to 1, compatible with n equal ones: 1 - (alpha / 2) ** (1 / n).

    It is the upper end of the exact interval (Clopper & Pearson 1934) for 0 of n, n at least 1.
    """
    return -math.expm1(math.log((1 - confidence_level) / 2) / n)


def constant_interval(
    value: float, n: int, bounds: tuple[float, float] | None, *, confidence_level: float
) -> tuple[float, float] | None:
    """Return an interval of a mean, in its unit, if all n draws gave the same `value`; None unless bounds are finite.

    At most `largest_missed_share` of the population differs from `value`, at worst by as much as `bounds`, the lowest
    and highest possible value, allow; so the interval is valid for every distribution within them. The n draws can be
    clusters if clusters with other values are not larger than usual.
    """
    if bounds is None or not all(math.isfinite(end) for end in bounds):
        return None
    missed = largest_missed_share(n, confidence_level=confidence_level)
    return value - missed * (value - bounds[0]), value + missed * (bounds[1] - value)


def bonett_price_interval(gained: float, lost: float, n: float, *, confidence_level: float) -> tuple[float, float]:
    """Return the adjusted Wald interval (Bonett & Price 2012), within -1 to 1, of a difference of paired proportions.

    Of n pairs, `gained` are yes for the candidate only and `lost` for the baseline only. One pair is added to each of
    these counts and two to n, so the interval's centre is closer to 0 than the observed difference.
    """
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = share_gained - share_lost
    half = normal_quantile(confidence_level) * bonett_price_standard_error(gained, lost, n)
    return clipped((centre - half, centre + half), -1.0, 1.0)


def tango_interval(gained: float, lost: float, n: float, *, confidence_level: float) -> tuple[float, float]:
    """Return the score interval (Tango 1998), within -1 to 1, for the counts of `bonett_price_interval`.

    It contains all differences that the score test does not reject.
    """
    return paired_score_interval(gained, lost, n, normal_quantile(confidence_level))


@lru_cache(maxsize=2**16)  # by bisection, and the replicates of a backtest repeat the same counts
def paired_score_interval(gained: float, lost: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Tango's interval, within -1 to 1, with the given normal or t quantile.

    n is above 0, and the counts need not be whole numbers, so that they can be effective ones.
    """
    square = quantile * quantile

    def is_accepted(difference: float) -> bool:
        """Return whether the squared score statistic at this true difference is at most `square`."""
        linear = (2 * n - gained + lost) * difference - gained - lost
        root = linear**2 + 8 * n * lost * difference * (1 - difference)
        # The maximum-likelihood estimate, given the difference, of the proportion of pairs lost.
        share_lost = (math.sqrt(max(root, 0.0)) - linear) / (4 * n)
        variance = n * (2 * share_lost + difference * (1 - difference))
        return (gained - lost - n * difference) ** 2 <= square * variance

    observed = (gained - lost) / n
    return _last_accepted(is_accepted, observed, -1.0), _last_accepted(is_accepted, observed, 1.0)


def _last_accepted(is_accepted: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return by bisection the point between `inside`, which is accepted, and `outside` up to which all are accepted."""
    if is_accepted(outside):
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_accepted(middle) else (inside, middle)
    return outside


@lru_cache(maxsize=2**16)  # as above
def paired_share_interval(gained: float, lost: float, n: float, *, confidence_level: float) -> tuple[float, float]:
    """Return the union of the intervals of Bonett & Price and of Tango, within -1 to 1.

    If few pairs are discordant, each has too high an error rate on one side, but in different settings. By full
    enumeration (20 settings: n of 20 to 1,000, 5 to 40 % of pairs discordant, a loss of 0.03 to 0.1), one end of the
    95 % interval of Bonett & Price excludes the true difference in up to 3.1 %, that of the union in at most 2.51 %.
    """
    wald = bonett_price_interval(gained, lost, n, confidence_level=confidence_level)
    score = tango_interval(gained, lost, n, confidence_level=confidence_level)
    return min(wald[0], score[0]), max(wald[1], score[1])


def bonett_price_standard_error(gained: float, lost: float, n: float) -> float:
    """Return the standard error used in `bonett_price_interval`; above 0 even if no pair is discordant."""
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    return math.sqrt((share_gained + share_lost - (share_gained - share_lost) ** 2) / (n + 2))


def exact_mcnemar_p(gained: float, lost: float) -> float:
    """Return the two-sided p-value of the exact McNemar test (McNemar 1947): discordant pairs go either way equally.

    It is twice the smaller binomial tail, at most 1; 1.0 without discordant pairs. The distribution is symmetric, so
    other two-sided definitions agree.
    """
    return min(1.0, 2 * float(special_functions().bdtr(min(gained, lost), gained + lost, 0.5)))


def newcombe_interval(
    yes_first: int, n_first: int, yes_second: int, n_second: int, *, confidence_level: float
) -> tuple[float, float]:
    """Return the hybrid score interval (Newcombe 1998, method 10) of the first proportion minus the second.

    The samples are independent, both n are at least 1, and the interval is within -1 to 1.
    """
    first, second = yes_first / n_first, yes_second / n_second
    ends = (
        wilson_interval(yes_first, n_first, confidence_level=confidence_level),
        wilson_interval(yes_second, n_second, confidence_level=confidence_level),
    )
    low = first - second - math.hypot(first - ends[0][0], ends[1][1] - second)
    high = first - second + math.hypot(ends[0][1] - first, second - ends[1][0])
    return clipped((low, high), -1.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedP:
    """One-sided p-values, 0 to 1. They add up to 1; both are 0.5 if no interval excludes the threshold."""

    p_above: float  # small if the interval is above the threshold: evidence that the true value is
    p_below: float  # small if it is below


def one_sided_p(interval_at: Callable[[float], tuple[float, float]], threshold: float) -> OneSidedP:
    """Return the one-sided p-values for a true value above `threshold` and for one below it.

    `interval_at` returns the two-sided interval at a confidence level between 0 and 1, in the unit of the threshold. It
    must not get narrower at higher levels, which is not checked, and need not be symmetric. `p_above` is half of the
    largest alpha for which the interval at level 1 - alpha contains the threshold or is below it: a one-sided test by
    inverting intervals (Casella & Berger 2002, section 9.2.1), so intervals and p-values never disagree. An interval
    that ends at the threshold contains it. If even the interval at a level of almost 0 is below the threshold,
    `p_above` is 1 - `p_below`, as for Student's t; if that interval contains the threshold, both are 0.5.

    The p-values are found to a relative error of 1e-10, rounded up. The smallest is SMALLEST_ALPHA / 2,
    for an interval that excludes the threshold at every level; a method with a coarser resolution, such as resampling,
    has to substitute its own smallest p-value. For an infinite threshold they are 0 and 1.

    Raise ValueError for a threshold that is nan, and for an interval with a nan or with its ends in the wrong order.
    """
    if math.isnan(threshold):
        raise ValueError(f"threshold: got {threshold!r}, wanted a number")
    if math.isinf(threshold):
        return OneSidedP(p_above=float(threshold > 0), p_below=float(threshold < 0))
    low, high = _checked(interval_at, SMALLEST_ALPHA)
    if low > threshold:
        p = _half_alpha(lambda confidence_level: _checked(interval_at, confidence_level)[0] - threshold)
        return OneSidedP(p_above=p, p_below=1 - p)
    if high < threshold:
        p = _half_alpha(lambda confidence_level: threshold - _checked(interval_at, confidence_level)[1])
        return OneSidedP(p_above=1 - p, p_below=p)
    return OneSidedP(p_above=0.5, p_below=0.5)


def _checked(interval_at: Callable[[float], tuple[float, float]], confidence_level: float) -> tuple[float, float]:
    low, high = interval_at(confidence_level)
    if not low <= high:
        raise ValueError(
            f"interval_at: got {low!r} to {high!r} at level {confidence_level!r}, wanted the lower end first"
        )
    return low, high


def _half_alpha(gap_at: Callable[[float], float]) -> float:
    """Return half of the smallest alpha at whose level the interval excludes the threshold, as it does at alpha 1.

    `gap_at` is the distance of its end from the threshold, above 0 where it excludes it. Regula falsi in the logarithm
    of alpha (Illinois) takes some fifteen intervals where ends are smooth; each third step halves the bracket.
    """
    within, outside, above = 0.5, 1.0, gap_at(SMALLEST_ALPHA)
    while (below := gap_at(1 - within)) > 0:
        if within <= SMALLEST_ALPHA:
            return within / 2
        within, outside, above = max(within**2, SMALLEST_ALPHA), within, below
    is_above: bool | None = None  # the side of the last step
    for step in range(STEPS):
        if outside <= within * (1 + PRECISION):
            break
        is_smooth = step % 3 < 2 and math.isfinite(above - below) and above > below
        share = above / (above - below) if is_smooth else 0.5
        middle = outside * (within / outside) ** min(max(share, PRECISION), 1 - PRECISION)
        gap, was_above = gap_at(1 - middle), is_above
        is_above = gap > 0
        if is_above:
            outside, above, below = middle, gap, below / 2 if was_above else below
        else:
            within, below, above = middle, gap, above / 2 if was_above is False else above
    return outside / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShare(IntervalEstimate):
    """A share of pairs and its interval, 0 to 1."""

    share: float | None  # None without pairs
    n_yes: int
    n_pairs: int


def pair_share(
    yes: ArrayLike, pairs: Sequence[tuple[Hashable, Hashable]], *, confidence_level: float = 0.95
) -> PairShare:
    """Return the share of 1 in `yes`, shape (n,), one 0 or 1 for each of n pairs of members, with a two-sided interval.

    Pairs with a common member are dependent, but only so far: a member contributes at most half of the variance
    between pairs (Hoeffding 1948, section 5: 2 zeta_1 <= zeta_2). So n pairs in which the members occur d_1, d_2, …
    times are worth at least 2 n^2 / sum(d^2) independent pairs; all pairs of k members are worth k / 2. The interval is
    the score interval (Wilson 1927) of that many.

    Raise ValueError for a value other than 0 and 1, another number of pairs, a pair of a member with itself, and a
    level not between 0 and 1.
    """
    confidence_level, values = checked_confidence_level(confidence_level), finite_vector("yes", yes, binary=True)
    if len(pairs) != values.size:
        raise ValueError(f"pairs: got {len(pairs)}, wanted one for each of {values.size} values")
    for index, (first, second) in enumerate(pairs):
        if first == second:
            raise ValueError(f"pairs[{index}]: got {first!r} with itself, wanted two members")
    degrees = np.array([*Counter(member for pair in pairs for member in pair).values()], dtype=float)
    effective = 2 * values.size**2 / float(degrees @ degrees) if values.size else 0.0
    share = float(values.mean()) if values.size else None
    ends = None if share is None else score_interval(share, effective, normal_quantile(confidence_level))
    return PairShare(
        share=share,
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        confidence_level=confidence_level,
        method="wilson, of pairs without a common member",
        n_yes=int(values.sum()),
        n_pairs=values.size,
        reason=None if values.size else "no pairs",
    )
