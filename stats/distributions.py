"""Quantiles and p-values of the normal distribution, Student's t, and the binomial with p = 1/2."""

from typing import Any

import numpy as np

from evalflows.stats.arrays import FloatArray, refuse_where


def normal_quantile(confidence_level: float) -> float:
    """Return z such that a standard normal variable lies within -z to z with probability `confidence_level`."""
    return -float(_special().ndtri((1 - confidence_level) / 2))


def log_normal_cdf(values: FloatArray) -> FloatArray:
    """Return the logarithms of the probabilities that a standard normal variable is below `values`."""
    return np.asarray(_special().log_ndtr(values), dtype=np.float64)


def t_quantile(confidence_level: float, df: float) -> float:
    """Return t such that Student's t with `df` degrees of freedom lies within -t to t with that probability."""
    return -float(_special().stdtrit(df, (1 - confidence_level) / 2))


def t_interval(centre: float, standard_error: float, *, df: float, confidence_level: float) -> tuple[float, float]:
    """Return the interval of Student's t around `centre` (Student 1908), in its unit."""
    half = t_quantile(confidence_level, df) * standard_error
    return centre - half, centre + half


def t_p_value(centre: float, standard_error: float, *, df: float) -> float:
    """Return the two-sided p-value of the hypothesis that the true value is 0. The standard error is not 0."""
    return 2 * float(_special().stdtr(df, -abs(centre) / standard_error))


def t_p_values(ratios: FloatArray, df: float) -> FloatArray:
    """Return the two-sided p-values of estimates that are `ratios`, shape (n,), of their standard errors."""
    return np.asarray(2 * _special().stdtr(df, -np.abs(ratios)), dtype=np.float64)


def beta_point(first: float, second: float, probability: float) -> float:
    """Return the quantile of a beta distribution with these two parameters, both above 0."""
    return float(_special().betaincinv(first, second, probability))


def even_binomial_p_value(successes: int, n: int) -> float:
    """Return the two-sided exact p-value of `successes` in n tosses of a fair coin; 1.0 for n of 0.

    It is twice the smaller tail, at most 1. The distribution is symmetric, so other two-sided definitions agree.
    """
    return min(1.0, 2 * float(_special().bdtr(min(successes, n - successes), n, 0.5)))


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


def _special() -> Any:
    # Late: loading scipy takes 0.2 s, which importing stats should not.
    from scipy import special  # type: ignore[import-untyped, unused-ignore]

    return special
