"""Intervals and tests for shares of yes: one share, two shares of the same examples, two shares of different ones."""

import math

from stats.distributions import clipped, even_binomial_p_value, normal_quantile


def wilson_interval(yes: int, n: int, *, level: float) -> tuple[float, float]:
    """Where the share of yes lies, by the score test (Wilson 1927). n is at least 1; within 0 to 1."""
    z = normal_quantile(level)
    share = yes / n
    centre = (yes + z * z / 2) / (n + z * z)
    half = z * math.sqrt(n * share * (1 - share) + z * z / 4) / (n + z * z)
    low, high = clipped((centre - half, centre + half), 0.0, 1.0)
    return min(low, share), max(high, share)  # at 0 of n and n of n the bound is the share, up to rounding


def bonett_price_interval(gained: int, lost: int, n: int, *, level: float) -> tuple[float, float]:
    """Where the difference of two shares of the same n examples lies: adjusted Wald (Bonett & Price 2012).

    `gained` pairs are yes for the candidate only, `lost` for the baseline only. One pair is added to each of both and
    two to n; the interval's centre is therefore nearer to 0 than the difference is. Within -1 to 1.
    """
    share_gained, share_lost = (gained + 1) / (n + 2), (lost + 1) / (n + 2)
    centre = share_gained - share_lost
    half = normal_quantile(level) * math.sqrt((share_gained + share_lost - centre**2) / (n + 2))
    return clipped((centre - half, centre + half), -1.0, 1.0)


def exact_mcnemar_p(gained: int, lost: int) -> float:
    """The two-sided p that pairs which differ are as often gained as lost (McNemar 1947, exact binomial form)."""
    return even_binomial_p_value(gained, gained + lost)


def newcombe_interval(
    yes_first: int, n_first: int, yes_second: int, n_second: int, *, level: float
) -> tuple[float, float]:
    """Where the first share minus the second lies, of different examples: hybrid score (Newcombe 1998, method 10).

    Both n are at least 1. Within -1 to 1.
    """
    first, second = yes_first / n_first, yes_second / n_second
    first_low, first_high = wilson_interval(yes_first, n_first, level=level)
    second_low, second_high = wilson_interval(yes_second, n_second, level=level)
    low = first - second - math.hypot(first - first_low, second_high - second)
    high = first - second + math.hypot(first_high - first, second - second_low)
    return clipped((low, high), -1.0, 1.0)
