"""Quantiles and tails: of the normal distribution, of Student's t, and of the binomial with even odds."""

from typing import Any

from stats.arrays import FloatArray, refuse_where


def normal_quantile(level: float) -> float:
    """z such that a standard normal number lies within -z to z with probability `level`."""
    return -float(_special().ndtri((1 - level) / 2))


def normal_probability(z: float) -> float:
    """How often a standard normal number is at most `z`."""
    return float(_special().ndtr(z))


def normal_point(probability: float) -> float:
    """What a standard normal number is at most with that probability, 0 to 1; without end at 0 and at 1."""
    return float(_special().ndtri(probability))


def t_quantile(level: float, df: float) -> float:
    """t such that a number from Student's t with `df` degrees of freedom lies within -t to t so often."""
    return -float(_special().stdtrit(df, (1 - level) / 2))


def t_probability(t: float, df: float) -> float:
    """How often a number from Student's t with `df` degrees of freedom is at most `t`."""
    return float(_special().stdtr(df, t))


def t_interval(centre: float, standard_error: float, *, df: float, level: float) -> tuple[float, float]:
    """`centre` and as much to either side as Student's t asks for (Student 1908), in the unit of `centre`."""
    half = t_quantile(level, df) * standard_error
    return centre - half, centre + half


def t_p_value(centre: float, standard_error: float, *, df: float) -> float:
    """The two-sided p of the hypothesis that `centre` estimates 0. The standard error is not 0."""
    return 2 * float(_special().stdtr(df, -abs(centre) / standard_error))


def beta_point(first: float, second: float, probability: float) -> float:
    """What a beta number with these two parameters, both above 0, is at most with that probability."""
    return float(_special().betaincinv(first, second, probability))


def even_binomial_p_value(successes: int, n: int) -> float:
    """The two-sided exact p of so many successes in n tosses of a fair coin; 1.0 with none tossed.

    Twice the smaller tail, at most 1; the distribution is symmetric, so other ways to be two-sided give the same.
    """
    return min(1.0, 2 * float(_special().bdtr(min(successes, n - successes), n, 0.5)))


def clipped(interval: tuple[float, float], lowest: float, highest: float) -> tuple[float, float]:
    """The part of an interval that the quantity can reach. It covers the truth as often as the whole."""
    return max(interval[0], lowest), min(interval[1], highest)


def checked_bounds(bounds: tuple[float, float] | None, **values: FloatArray) -> tuple[float, float] | None:
    """The lowest and the highest that values can be, as floats; either may be infinite. None where nothing is known.

    Raises ValueError where they are not in order, and for a value beyond them; the keywords are what it calls those.
    """
    if bounds is None:
        return None
    lowest, highest = (float(end) for end in bounds)
    if not lowest < highest:
        raise ValueError(f"bounds: got {lowest!r} to {highest!r}, wanted two numbers, the lower one first")
    for name, side in values.items():
        refuse_where(name, side, (side < lowest) | (side > highest), f"{lowest} to {highest}, its bounds")
    return lowest, highest


def _special() -> Any:
    # Loading scipy takes a fifth of a second, which whoever only imports stats should not wait for.
    from scipy import special  # type: ignore[import-untyped, unused-ignore]

    return special
