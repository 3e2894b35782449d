"""On which side of a threshold the truth lies: one-sided p-values from any method that gives two-sided intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass

FINEST = 2.0**-53
"""The smallest alpha tried: no level between 1 - FINEST and 1 is a float."""

STEPS = 40
"""Bisections of alpha within a factor of 2: beyond it, what is left is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedP:
    """One-sided p-values. They add up to 1, but where each is 0.5 at least, the interval telling neither."""

    p_above: float  # small where the interval lies above the threshold: evidence that the true value does
    p_below: float  # small where it lies below


def one_sided_p(interval_at: Callable[[float], tuple[float, float]], threshold: float) -> OneSidedP:
    """How sure it is that the true value is above `threshold`, and that it is below, both in the unit of the interval.

    `interval_at` gives the two-sided interval at a level between 0 and 1, wider at higher levels (narrower ones are
    not looked for); its sides need not be alike. `p_above` is half of the largest alpha for which the interval at level
    1 - alpha holds the threshold or lies below it: a one-sided test by inverting intervals (Casella & Berger 2002,
    section 9.2.1), so that verdicts of intervals and of p never disagree. An interval that ends at the threshold holds
    it. Where even the interval at a level of almost 0 lies below the threshold, `p_above` is 1 - `p_below`, as it is
    for Student's t; where that interval holds the threshold, both are 0.5.

    By bisection, to 1e-10 of the p, rounded up. No p is less than FINEST / 2, which an interval has that lies beyond at
    every level, as one does that stays as it is; a method that cannot tell such p, by resampling for example, has to
    put its own smallest in its place. A threshold that is infinite is certain: 0 and 1.

    Raises ValueError for a threshold that is nan, and for an interval that has a nan or its ends in the wrong order.
    """
    if math.isnan(threshold):
        raise ValueError(f"threshold: got {threshold!r}, wanted a number")
    if math.isinf(threshold):
        return OneSidedP(p_above=float(threshold > 0), p_below=float(threshold < 0))
    low, high = _checked(interval_at, FINEST)
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
            f"interval_at: got {low!r} to {high!r} at level {confidence_level!r}, wanted two ends in order"
        )
    return low, high


def _half_alpha(lies_beyond: Callable[[float], bool]) -> float:
    """Half of the smallest alpha at whose level the interval lies beyond the threshold, as it does at alpha of 1."""
    within, outside = 0.5, 1.0
    while lies_beyond(1 - within):
        within, outside = within / 2, within
        if within < FINEST:
            return outside / 2
    for _ in range(STEPS):
        middle = (within + outside) / 2
        within, outside = (within, middle) if lies_beyond(1 - middle) else (middle, outside)
    return outside / 2
