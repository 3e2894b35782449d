"""How large a difference could be found, and how many examples it takes to find one."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from evalflows.stats.arrays import LARGEST, checked_confidence_level
from evalflows.stats.differences.components import Components
from evalflows.stats.distributions import normal_quantile, t_quantile

MOST_EXAMPLES = 10**15
"""No plan asks for more; what would is a mistake in the effect or the sd."""

NORMAL_FROM = 1e5
"""Degrees of freedom from which on t counts as normal: powers differ by less than 1e-5."""

CERTAIN = 1e9
"""An effect of more standard errors is as good as infinite, which scipy's t would not take."""


class Plan(NamedTuple):
    """How many examples it takes, each answered so often by either side."""

    repetitions: int
    examples: int


def detectable_effect(
    standard_error: float, *, df: float | None = None, confidence_level: float = 0.95, power: float = 0.8
) -> float:
    """The smallest true difference that a two-sided test at `confidence_level` would find with probability `power`.

    In the unit of `standard_error`, which is that of the difference. Found means significant and with the right sign.
    (z of the test + z of the power) times the standard error (Cohen 1988; Miller 2024, on power analysis); with `df`,
    the noncentrality at which Student's t has that power, instead of the sum.

    Raises ValueError for a standard error that is not finite or is below 0, df below 1, a level not between 0 and 1,
    and a power not between (1 - level) / 2, which chance alone has, and 1.
    """
    confidence_level, power = checked_confidence_level(confidence_level), _checked_power(power, confidence_level)
    error, df = _at_least_0("standard_error", standard_error), _checked_df(df)
    return error * _needed_ratio(df, confidence_level, power)


def power_of(effect: float, *, standard_error: float, df: float | None = None, confidence_level: float = 0.95) -> float:
    """Power of a two-sided test at `confidence_level` for a true difference of `effect`, with the right sign; 0 to 1.

    Both in one unit; the sign of `effect` does not matter. By the normal distribution, with `df` by the noncentral t.
    An effect of 0 is called found with either sign, of which one counts here: (1 - level) / 2.

    Raises ValueError for an effect that is not finite, a standard error that is not finite or not above 0, df below
    1, and a level not between 0 and 1.
    """
    confidence_level, df = checked_confidence_level(confidence_level), _checked_df(df)
    size, error = _at_least_0("effect", abs(effect)), _at_least_0("standard_error", standard_error)
    if not error:
        raise ValueError(f"standard_error: got {standard_error!r}, wanted a number above 0")
    return _power_at(size / error, df, confidence_level)


def needed_examples(effect: float, *, sd: float, confidence_level: float = 0.95, power: float = 0.8) -> int:
    """How many pairs, or clusters, a two-sided paired t-test needs to find a true difference with that power.

    `sd` is the standard deviation of the paired difference from one to the next, so that the standard error is
    sd / sqrt(n); `effect`, not 0, is in its unit, and its sign does not matter. Found means significant and with the
    right sign. From n = (z + z)^2 sd^2 / effect^2 (Miller 2024, on power analysis) upwards, to the first n at which the
    noncentral t with n - 1 degrees of freedom has the power: two more or so at 0.95. At least 2.

    Raises ValueError for an effect of 0, for more than MOST_EXAMPLES, an effect or sd that is not finite, an sd below
    0, a level not between 0 and 1, and a power not between (1 - level) / 2 and 1.
    """
    confidence_level, power = checked_confidence_level(confidence_level), _checked_power(power, confidence_level)
    size, sd = _at_least_0("effect", abs(effect)), _at_least_0("sd", sd)
    ratio = _needed_ratio(None, confidence_level, power) * sd
    if not size or (ratio / size) ** 2 > MOST_EXAMPLES:
        raise ValueError(f"effect: got {effect!r} with sd {sd!r}, wanted one found with {MOST_EXAMPLES} examples")
    n = max(2, math.ceil((ratio / size) ** 2))
    while sd and n <= NORMAL_FROM and _power_at(size * math.sqrt(n) / sd, n - 1, confidence_level) < power:
        n += 1
    return n


def plan_sizes(
    effect: float,
    spread: Components | float,
    *,
    repetitions: Sequence[int],
    confidence_level: float = 0.95,
    power: float = 0.8,
) -> list[Plan]:
    """For each number of repetitions, how many examples find a true difference of `effect` with that power.

    With `Components`, the variance of a paired difference is between + within / K where both sides answer each example
    K times (Miller 2024: omega^2 + sigma_A^2 / K + sigma_B^2 / K). With an sd, it is that for all K: nothing says what
    more repetitions would save. All in one unit.

    Raises ValueError for repetitions that are not at least 1, components whose parts are None, and as needed_examples.
    """
    if min(repetitions, default=1) < 1:
        raise ValueError(f"repetitions: got {min(repetitions)!r}, wanted at least 1")
    return [
        Plan(k, needed_examples(effect, sd=_sd_of(spread, k), confidence_level=confidence_level, power=power))
        for k in repetitions
    ]


def cautious_sd(candidate_mean: float, baseline_mean: float) -> float:
    """The sd of the paired difference of two yes/no runs with these shares of yes, were their answers independent.

    sqrt(p (1 - p) + q (1 - q)): a guess for where there are no runs yet. Runs over the same examples mostly agree more
    than independent ones, and their sd is less than this; only where one tends to fail what the other gets right is it
    more. Raises ValueError for a mean that is not from 0 to 1.
    """
    for name, mean in (("candidate_mean", candidate_mean), ("baseline_mean", baseline_mean)):
        if not 0 <= mean <= 1:
            raise ValueError(f"{name}: got {mean!r}, wanted 0 to 1")
    return math.sqrt(candidate_mean * (1 - candidate_mean) + baseline_mean * (1 - baseline_mean))


def _sd_of(spread: Components | float, repetitions: int) -> float:
    if not isinstance(spread, Components):
        return spread
    if spread.between is None or spread.within is None:
        raise ValueError(f"spread: got components without parts, wanted both ({spread.reason})")
    return math.sqrt(spread.between + spread.within / repetitions)


def _needed_ratio(df: float | None, confidence_level: float, power: float) -> float:
    """The effect in standard errors that has the power: the noncentrality, by bisection to the last digits."""
    if df is None or df >= NORMAL_FROM:
        return normal_quantile(confidence_level) + float(_special().ndtri(power))
    low, high = 0.0, 1.0
    while _power_at(high, df, confidence_level) < power:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _power_at(middle, df, confidence_level) < power else (low, middle)
    return high


def _power_at(ratio: float, df: float | None, confidence_level: float) -> float:
    """The power at an effect of so many standard errors, at least 0."""
    if df is None or df >= NORMAL_FROM:
        return float(_special().ndtr(ratio - normal_quantile(confidence_level)))
    missed = float(_special().nctdtr(df, min(ratio, CERTAIN), t_quantile(confidence_level, df)))
    return 1.0 if math.isnan(missed) else 1 - missed  # scipy has gaps, all where less than 1e-12 is missed


def _checked_power(power: float, confidence_level: float) -> float:
    if not (1 - confidence_level) / 2 < power < 1:
        raise ValueError(f"power: got {power!r}, wanted a number between {(1 - confidence_level) / 2:.6g} and 1")
    return float(power)


def _checked_df(df: float | None) -> float | None:
    if df is not None and not df >= 1:
        raise ValueError(f"df: got {df!r}, wanted at least 1")
    return df


def _at_least_0(name: str, number: float) -> float:
    if not 0 <= number <= LARGEST:
        raise ValueError(f"{name}: got {number!r}, wanted a finite number of at least 0")
    return float(number)


def _special() -> Any:
    # Loading scipy takes a fifth of a second, which whoever only imports stats should not wait for.
    from scipy import special  # type: ignore[import-untyped, unused-ignore]

    return special
