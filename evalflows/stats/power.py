"""Power analysis: minimum detectable effects and sample sizes of paired comparisons, and where the variance of a
difference comes from."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evalflows.specs.frozen import dataclass
from evalflows.stats.arrays import LARGEST, FloatArray, checked_confidence_level, mean_of
from evalflows.stats.bounded_means import lower_bounds
from evalflows.stats.proportions import normal_quantile, paired_share_interval, special_functions, t_quantile

MAX_EXAMPLES = 10**15
"""The largest sample size that is returned. More would be needed only if the effect or the sd is a mistake."""

NORMAL_FROM = 1e5
"""From this many degrees of freedom on, the normal distribution replaces t: powers differ by less than 1e-5."""

CERTAIN = 1e9
"""The largest effect, in standard errors, that is passed to scipy, whose noncentral t fails for infinite ones."""

POINTS = 64
"""Points that stand for a normal distribution."""

MOST_UNSEEN = 3
"""If none of n pairs differs, at most MOST_UNSEEN / n of all do, at 95 % confidence (Hanley & Lippman-Hand 1983)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Variances of the paired difference of one example, in the square of the unit of the values."""

    between: float | None  # of the true difference between examples; None with a reason, like `within`
    within: float | None  # of one repetition of both sides: with K of each, the variance is between + within / K
    observed: float | None  # of the differences of means; None with fewer than two examples
    n: int  # examples with at least one repetition on both sides
    method: str
    reason: str | None  # why `between` and `within` are None; None if they are not


class _Side(NamedTuple):
    means: FloatArray  # shape (n,): of each example
    noise: float | None  # variance of one repetition; None where no example has two
    share: float  # the mean of 1 / K


class Plan(NamedTuple):
    """A sample size for a number of repetitions."""

    repetitions: int  # of each example, on each side
    examples: int


def detectable_effect(
    standard_error: float, *, df: float | None = None, confidence_level: float = 0.95, power: float = 0.8
) -> float:
    """Return the minimum detectable effect: the smallest true difference that a two-sided test detects with `power`.

    It is in the unit of `standard_error`, that of the difference. Detected means significant at `confidence_level` and
    with the right sign. It is (z of the test + z of the power) times the standard error (Cohen 1988; Miller 2024, on
    power analysis); with `df`, the sum is replaced by the noncentrality at which Student's t has that power.

    Raise ValueError for a standard error that is not finite or is below 0, df below 1, a level not between 0 and 1,
    and a power not between (1 - level) / 2, the power without an effect, and 1.
    """
    confidence_level, power = checked_confidence_level(confidence_level), _checked_power(power, confidence_level)
    error, df = _at_least_0("standard_error", standard_error), _checked_df(df)
    return error * _needed_ratio(df, confidence_level, power)


def smallest_detectable(
    n: float, variance: float, *, yes_no: bool = False, confidence_level: float = 0.95, power: float = 0.8
) -> float:
    """Return the smallest true difference that n pairs (or clusters), at least 2, detect with `power`.

    `variance` is that of the difference between pairs. For yes or no, once per pair and side, a difference d means that
    at least a share d of the pairs differ, so the variance is at least d - d^2, however few have differed so far.

    Raise ValueError as `detectable_effect` does.
    """
    ratio = detectable_effect(1.0, df=n - 1, confidence_level=confidence_level, power=power)
    size = ratio * math.sqrt(variance / n)
    if yes_no and size - size**2 > variance:
        return ratio**2 / (n + ratio**2)  # where d = ratio * sqrt((d - d^2) / n)
    return size


def unseen_variance(n: int) -> float:
    """Return the most that the variance of a difference of yes and no is likely to be if none of n pairs differs."""
    return min(MOST_UNSEEN / n, cautious_sd(0.5, 0.5) ** 2)


def needed_examples(effect: float, *, sd: float, confidence_level: float = 0.95, power: float = 0.8) -> int:
    """Return the number of pairs, or clusters, with which a two-sided paired t-test detects `effect` with that power.

    `sd` is the standard deviation of the paired difference between pairs (or clusters), so that the standard error is
    sd / sqrt(n); `effect`, not 0, is in its unit, and its sign does not matter. Detected means significant with the
    right sign. The search starts at n = (z + z)^2 sd^2 / effect^2 (Miller 2024, on power analysis) and ends at the
    first n at which the noncentral t with n - 1 degrees of freedom has the power, about two later at
    level 0.95. The result is at least 2.

    Raise ValueError for an effect of 0, for more than MAX_EXAMPLES, for an effect or sd that is not finite, an sd below
    0, a level not between 0 and 1, and a power not between (1 - level) / 2 and 1.
    """
    confidence_level, power = checked_confidence_level(confidence_level), _checked_power(power, confidence_level)
    size, sd = _at_least_0("effect", abs(effect)), _at_least_0("sd", sd)
    ratio = _needed_ratio(None, confidence_level, power) * sd
    if not size or (ratio / size) ** 2 > MAX_EXAMPLES:
        raise ValueError(f"effect: got {effect!r} with sd {sd!r}, wanted one detectable with {MAX_EXAMPLES} examples")
    n = max(2, math.ceil((ratio / size) ** 2))
    while sd and n <= NORMAL_FROM and power_at(size * math.sqrt(n) / sd, n - 1, confidence_level) < power:
        n += 1
    return n


def least_n(decides: Callable[[int], bool], first: int, most: int = MAX_EXAMPLES) -> int | None:
    """Return the least n from `first` to `most` that decides; None if `most` does not.

    An n that decides is followed only by others that do, which is not checked.
    """
    low, high = first - 1, first
    while not decides(high):
        low, high = high, 2 * high
        if high > most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def needed_for_margin(
    margin: float, share_differing: float, *, confidence_level: float = 0.95, power: float = 0.8
) -> int:
    """Return how many yes/no pairs an equally good candidate needs to pass a non-inferiority margin with that power.

    `share_differing` is the expected share of pairs that differ, half of them each way. The interval is the one that
    decides (`paired_share_interval`), at the difference above which a share `power` of the estimates lies: with no pair
    that differs, 73 for a margin of 0.05. Raise ValueError for a margin of 0 or less, and as `needed_examples`.
    """
    confidence_level, power = checked_confidence_level(confidence_level), _checked_power(power, confidence_level)
    below = float(special_functions().ndtri(power)) * math.sqrt(share_differing)

    def decides(n: int) -> bool:
        difference = min(below / math.sqrt(n), share_differing)
        gained, lost = (n * (share_differing + sign * difference) / 2 for sign in (-1, 1))
        return paired_share_interval(gained, lost, n, confidence_level=confidence_level)[0] > -margin

    if not margin > 0 or (needed := least_n(decides, 2)) is None:
        raise ValueError(f"margin: got {margin!r}, wanted one that {MAX_EXAMPLES} examples can pass")
    return needed


def needed_in_range(
    margin: float, sd: float, widest: float, *, confidence_level: float = 0.95, power: float = 0.8
) -> int:
    """Return how many pairs, or clusters, an equally good candidate needs to pass a non-inferiority margin.

    Their differences are taken as normal, cut to what is possible, up to `widest`, and are after that of this standard
    deviation, at most `widest`. The interval is the one that decides in a range (`stats.bounded_means`), at the
    difference above which a share `power` of the estimates lies. Raise ValueError for a margin of 0 or less, and as
    `needed_examples`.
    """
    confidence_level, power = checked_confidence_level(confidence_level), _checked_power(power, confidence_level)
    shares = (np.arange(POINTS) + 0.5) / POINTS
    normal = np.asarray(special_functions().ndtri(shares))
    sd = min(sd, widest)
    below = float(special_functions().ndtri(power)) * sd
    wide = normal * _first(lambda scale: (normal * scale).clip(-widest, widest).std() >= sd)
    worst, alpha = np.array([-widest]), (1 - confidence_level) / 2

    def decides(n: int) -> bool:
        mean = max(-below / math.sqrt(n), -widest)
        shift = _first(lambda shift: (wide - shift).clip(-widest, widest).mean() <= mean)
        values = (wide - shift).clip(-widest, widest)[None]
        return bool(lower_bounds(values, worst, alpha, times=n / POINTS)[0] > -margin)

    if not margin > 0 or (needed := least_n(decides, 2)) is None:
        raise ValueError(f"margin: got {margin!r}, wanted one that {MAX_EXAMPLES} examples can pass")
    return needed


def _first(is_enough: Callable[[float], bool]) -> float:
    """Return about the least number from 0 to CERTAIN that is enough; CERTAIN if none is."""
    low, high = 0.0, 1.0
    while high < CERTAIN and not is_enough(high):
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def plan_sizes(
    effect: float,
    spread: Components | float,
    *,
    repetitions: Sequence[int],
    confidence_level: float = 0.95,
    power: float = 0.8,
) -> list[Plan]:
    """Return, for each number of repetitions, the sample size with which `effect` is detected with that power.

    With `Components` as `spread`, the variance of a paired difference is between + within / K if both sides answer each
    example K times (Miller 2024: omega^2 + sigma_A^2 / K + sigma_B^2 / K). A number is the sd for any K: without
    components, the benefit of more repetitions is unknown. Effect and standard deviations share one unit.

    Raise ValueError for repetitions below 1, for components without `between` and `within`, and as `needed_examples`.
    """
    if min(repetitions, default=1) < 1:
        raise ValueError(f"repetitions: got {min(repetitions)!r}, wanted at least 1")
    return [
        Plan(k, needed_examples(effect, sd=_sd_of(spread, k), confidence_level=confidence_level, power=power))
        for k in repetitions
    ]


def cautious_sd(candidate_mean: float, baseline_mean: float) -> float:
    """Return the sd of the paired difference of two independent yes/no runs with these shares of yes, 0 to 1.

    It is sqrt(p (1 - p) + q (1 - q)), a conservative guess before there are runs: runs over the same examples mostly
    correlate positively, so their sd is smaller. It is larger only if the correlation is negative.

    Raise ValueError for a mean that is not from 0 to 1.
    """
    for name, mean in (("candidate_mean", candidate_mean), ("baseline_mean", baseline_mean)):
        if not 0 <= mean <= 1:
            raise ValueError(f"{name}: got {mean!r}, wanted 0 to 1")
    return math.sqrt(candidate_mean * (1 - candidate_mean) + baseline_mean * (1 - baseline_mean))


def _sd_of(spread: Components | float, repetitions: int) -> float:
    if not isinstance(spread, Components):
        return spread
    if spread.between is None or spread.within is None:
        raise ValueError(f"spread: got components without values, wanted between and within ({spread.reason})")
    return math.sqrt(spread.between + spread.within / repetitions)


def _needed_ratio(df: float | None, confidence_level: float, power: float) -> float:
    """Return the effect, in standard errors, that has the power; for t by bisection down to rounding."""
    if df is None or df >= NORMAL_FROM:
        return normal_quantile(confidence_level) + float(special_functions().ndtri(power))
    low, high = 0.0, 1.0
    while power_at(high, df, confidence_level) < power:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if power_at(middle, df, confidence_level) < power else (low, middle)
    return high


def power_at(ratio: float, df: float | None, confidence_level: float) -> float:
    """Return the power, 0 to 1, of a two-sided test for a true difference of `ratio` standard errors, at least 0.

    Only results with the right sign count, so the power at 0 is (1 - level) / 2. The distribution is normal, or with
    `df` the noncentral t.
    """
    if df is None or df >= NORMAL_FROM:
        return float(special_functions().ndtr(ratio - normal_quantile(confidence_level)))
    missed = float(special_functions().nctdtr(df, min(ratio, CERTAIN), t_quantile(confidence_level, df)))
    return 1.0 if math.isnan(missed) else 1 - missed  # scipy returns nan in places, all with a power above 1 - 1e-12


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


def difference_components(candidate: ArrayLike, baseline: ArrayLike) -> Components:
    """Split the variance of the paired difference into variance between examples and between repetitions.

    `candidate`, shape (n, K), and `baseline`, shape (n, K2), are the repetitions of the same examples, row by row, nan
    if missing; rows with no value on one side are dropped. The noise of a side is the pooled variance of its
    repetitions within examples, `within` is the sum of both sides' noise, and `between` is the variance of the
    differences of means minus the contribution of noise, each side's noise times its mean of 1 / K: the ANOVA
    estimators (Searle, Casella & McCulloch 1992, chapter 3; Miller 2024, on resampling). Examples count as independent,
    and so does the noise of the two sides. If no example has two repetitions on a side, there are no components; with
    fewer than two examples there is no `observed`.

    Raise ValueError for an inf, for arrays that are not two-dimensional, and for different numbers of examples.
    """
    candidate_rows, baseline_rows = _rows("candidate", candidate), _rows("baseline", baseline)
    if (count := len(candidate_rows)) != len(baseline_rows):
        raise ValueError(f"candidate: got {count} examples, wanted as many as the baseline's {len(baseline_rows)}")
    both = ~(np.isnan(candidate_rows).all(axis=1) | np.isnan(baseline_rows).all(axis=1))
    n = int(both.sum())
    if n < 2:
        return _components(n, None, reason=f"{n or 'no'} example{'' if n == 1 else 's'}: a variance needs at least 2")
    sides = _side(candidate_rows[both]), _side(baseline_rows[both])
    differences = sides[0].means - sides[1].means
    observed = float(((differences - mean_of(differences)) ** 2).sum()) / (n - 1)
    for name, side in zip(("candidate", "baseline"), sides, strict=True):
        if side.noise is None:
            return _components(n, observed, reason=f"no example with 2 repetitions of the {name}: its noise is unknown")
    return _split(n, observed, sides)


def _split(n: int, observed: float, sides: tuple[_Side, _Side]) -> Components:
    noises = [side.noise or 0.0 for side in sides]
    between = observed - sum(noise * side.share for noise, side in zip(noises, sides, strict=True))
    return _components(n, observed, between=between, within=sum(noises))


def _components(
    n: int,
    observed: float | None,
    *,
    between: float | None = None,
    within: float | None = None,
    reason: str | None = None,
) -> Components:
    return Components(
        between=None if between is None else max(between, 0.0),  # negative by chance if it is small
        within=within,
        observed=observed,
        n=n,
        method="anova",
        reason=reason,
    )


def _rows(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {array.shape}, wanted one row per example, one column per repetition")
    if (np.abs(array) > LARGEST).any():
        raise ValueError(f"{name}: got a number that is not finite, wanted finite numbers, or nan if missing")
    return array


def _side(rows: FloatArray) -> _Side:
    """Summarise rows with at least one number each. Equal numbers get variance 0, despite rounding of their mean."""
    present = ~np.isnan(rows)
    counts = present.sum(axis=1)
    filled = np.where(present, rows, np.nanmin(rows, axis=1, keepdims=True))
    lowest, highest = filled.min(axis=1), np.nanmax(rows, axis=1)
    means = np.clip(np.nansum(rows, axis=1) / counts, lowest, highest)
    squares = float((np.where(present, rows - means[:, None], 0.0) ** 2).sum())
    free = int(counts.sum()) - len(rows)
    return _Side(means=means, noise=squares / free if free else None, share=float((1 / counts).mean()))
