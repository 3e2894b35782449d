"""One-sided p-values against a threshold, by inverting any method that gives two-sided intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass

SMALLEST_ALPHA = 2.0**-53
"""The smallest alpha that is tried: no float lies between 1 - SMALLEST_ALPHA and 1."""

STEPS = 40
"""Bisection steps for alpha within a factor of 2; the remaining error is rounding."""


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

    The p-values are found by bisection to a relative error of 1e-10, rounded up. The smallest is SMALLEST_ALPHA / 2,
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
        p = _half_alpha(lambda confidence_level: _checked(interval_at, confidence_level)[0] > threshold)
        return OneSidedP(p_above=p, p_below=1 - p)
    if high < threshold:
        p = _half_alpha(lambda confidence_level: _checked(interval_at, confidence_level)[1] < threshold)
        return OneSidedP(p_above=1 - p, p_below=p)
    return OneSidedP(p_above=0.5, p_below=0.5)


def _checked(interval_at: Callable[[float], tuple[float, float]], confidence_level: float) -> tuple[float, float]:
    low, high = interval_at(confidence_level)
    if not low <= high:
        raise ValueError(
            f"interval_at: got {low!r} to {high!r} at level {confidence_level!r}, wanted the lower end first"
        )
    return low, high


def _half_alpha(excludes: Callable[[float], bool]) -> float:
    """Return half of the smallest alpha at whose level the interval excludes the threshold, as it does at alpha 1."""
    within, outside = 0.5, 1.0
    while excludes(1 - within):
        within, outside = within / 2, within
        if within < SMALLEST_ALPHA:
            return outside / 2
    for _ in range(STEPS):
        middle = (within + outside) / 2
        within, outside = (within, middle) if excludes(1 - middle) else (middle, outside)
    return outside / 2
