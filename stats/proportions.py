"""Intervals and tests for shares of yes: one share, two shares of the same examples, two shares of different ones."""

import math
from collections.abc import Callable

from evalflows.stats.distributions import beta_point, clipped, even_binomial_p_value, normal_quantile

HALVINGS = 45
"""Of a distance of 2 at most: what is left is rounding."""


def wilson_interval(yes: int, n: int, *, confidence_level: float) -> tuple[float, float]:
    """Where the share of yes lies, by the score test (Wilson 1927). n is at least 1; within 0 to 1."""
    return score_interval(yes / n, n, normal_quantile(confidence_level))


def score_interval(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Wilson's interval around a share of `n` values, which need not be a whole number, with the quantile given."""
    square = quantile * quantile
    centre = (n * share + square / 2) / (n + square)
    half = quantile * math.sqrt(n * share * (1 - share) + square / 4) / (n + square)
    low, high = clipped((centre - half, centre + half), 0.0, 1.0)
    return min(low, share), max(high, share)  # at 0 of n and n of n the bound is the share, up to rounding


def clopper_pearson_interval(yes: int, n: int, *, confidence_level: float) -> tuple[float, float]:
    """Where the share of yes lies, exactly: neither end errs in more than (1 - level) / 2 (Clopper & Pearson 1934).

    Whatever the share is; the price is width. n is at least 1; within 0 to 1.
    """
    tail = (1 - confidence_level) / 2
    low = beta_point(yes, n - yes + 1, tail) if yes else 0.0
    high = beta_point(yes + 1, n - yes, 1 - tail) if yes < n else 1.0
    return low, high


def most_that_differ(n: int, *, confidence_level: float) -> float:
    """The largest share of others that n in a row may have missed: 1 - (alpha / 2) ** (1 / n) (Clopper & Pearson 1934).

    The upper end of their exact interval for 0 of n, n at least 1.
    """
    return -math.expm1(math.log((1 - confidence_level) / 2) / n)


def constant_interval(
    value: float, n: int, bounds: tuple[float, float] | None, *, confidence_level: float
) -> tuple[float, float] | None:
    """Where a mean lies of which n draws gave one and the same `value`; None unless both bounds are finite.

    No more than `most_that_differ` of all others are different, and these differ no more than the bounds of what is
    drawn allow. It holds whatever the distribution. Draws may be clusters, if those that differ are of usual size.
    """
    if bounds is None or not all(math.isfinite(end) for end in bounds):
        return None
    most = most_that_differ(n, confidence_level=confidence_level)
    return value - most * (value - bounds[0]), value + most * (bounds[1] - value)


def bonett_price_interval(gained: int, lost: int, n: int, *, confidence_level: float) -> tuple[float, float]:
    """Where the difference of two shares of the same n examples lies: adjusted Wald (Bonett & Price 2012).

    `gained` pairs are yes for the candidate only, `lost` for the baseline only. One pair is added to each of both and
    two to n; the interval's centre is therefore nearer to 0 than the difference is. Within -1 to 1.
    """
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = share_gained - share_lost
    half = normal_quantile(confidence_level) * bonett_price_error(gained, lost, n)
    return clipped((centre - half, centre + half), -1.0, 1.0)


def tango_interval(gained: int, lost: int, n: int, *, confidence_level: float) -> tuple[float, float]:
    """The same by the score test (Tango 1998): all differences that it does not refuse. Within -1 to 1."""
    square = normal_quantile(confidence_level) ** 2

    def is_held(difference: float) -> bool:
        """Whether what was found is no further from it than `square` times the variance there."""
        linear = (2 * n - gained + lost) * difference - gained - lost
        root = linear**2 + 8 * n * lost * difference * (1 - difference)
        share_lost = (math.sqrt(max(root, 0.0)) - linear) / (4 * n)  # the likeliest, were that the difference
        variance = n * (2 * share_lost + difference * (1 - difference))
        return (gained - lost - n * difference) ** 2 <= square * variance

    found = (gained - lost) / n
    return _furthest(is_held, found, -1.0), _furthest(is_held, found, 1.0)


def _furthest(is_held: Callable[[float], bool], inside: float, outside: float) -> float:
    """The last number on the way that is held, by halving, to rounding; all before it are."""
    if is_held(outside):
        return outside
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_held(middle) else (inside, middle)
    return outside


def paired_share_interval(gained: int, lost: int, n: int, *, confidence_level: float) -> tuple[float, float]:
    """The intervals of Bonett & Price and of Tango joined.

    Each errs too often on one side where few pairs differ, and they do so at different places: of all outcomes counted
    (20 settings: n of 20 to 1,000, 5 to 40 % of the pairs differ, a loss of 0.03 to 0.1) an end of the former is beyond
    the truth in up to 3.1 %, of both joined in 2.51 % at most.
    """
    one = bonett_price_interval(gained, lost, n, confidence_level=confidence_level)
    other = tango_interval(gained, lost, n, confidence_level=confidence_level)
    return min(one[0], other[0]), max(one[1], other[1])


def bonett_price_error(gained: int, lost: int, n: int) -> float:
    """The standard error in that interval; above 0 even where no pair differs."""
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    return math.sqrt((share_gained + share_lost - (share_gained - share_lost) ** 2) / (n + 2))


def exact_mcnemar_p(gained: int, lost: int) -> float:
    """The two-sided p that pairs which differ are as often gained as lost (McNemar 1947, exact binomial form)."""
    return even_binomial_p_value(gained, gained + lost)


def newcombe_interval(
    yes_first: int, n_first: int, yes_second: int, n_second: int, *, confidence_level: float
) -> tuple[float, float]:
    """Where the first share minus the second lies, of different examples: hybrid score (Newcombe 1998, method 10).

    Both n are at least 1. Within -1 to 1.
    """
    first, second = yes_first / n_first, yes_second / n_second
    ends = (
        wilson_interval(yes_first, n_first, confidence_level=confidence_level),
        wilson_interval(yes_second, n_second, confidence_level=confidence_level),
    )
    low = first - second - math.hypot(first - ends[0][0], ends[1][1] - second)
    high = first - second + math.hypot(ends[0][1] - first, second - ends[1][0])
    return clipped((low, high), -1.0, 1.0)
