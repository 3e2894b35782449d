"""Tests by rank: Wilcoxon's of pairs, Mann & Whitney's of two samples, and the intervals that belong to them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stats.arrays import FloatArray
from stats.distributions import normal_quantile

EXACT = 50
"""Up to so many numbers p is counted, ties and all; beyond, the normal distribution is close."""
DIGITS = 12
"""What is equal to so many digits of the largest number is tied: see stats.clusters.ROUNDING."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTest:
    """How far apart two sides are by rank, in the unit of the values."""

    shift: float  # the estimate of Hodges & Lehmann
    low: float | None  # None where the ranks do not bound it, as is `high`
    high: float | None
    p_value: float  # two-sided, of no difference
    exact: bool  # whether p was counted


def signed_rank(differences: FloatArray, *, level: float, scale: float) -> RankTest:
    """Wilcoxon's test of `differences`, shape (n,), n at least 1, reckoned from numbers of size `scale`.

    Those that are 0 are left out of the test, and equal ones share their ranks (Wilcoxon 1945). p is counted over all
    ways to give the ranks signs, with up to EXACT differences that are not 0, else from the normal distribution with
    ties corrected (scipy). The shift is the pseudo-median, the median of the means of all pairs of differences, each
    with itself too; the ends of the interval are such means (Hodges & Lehmann 1963), chosen as if nothing were tied:
    with ties it covers no less (Noether 1967). The pseudo-median is the mean if the distribution is symmetric.
    """
    unit = scale or 1.0
    differences = np.sort(np.round(differences / unit, DIGITS))
    n = differences.size
    counted = differences[differences != 0]
    if exact := counted.size <= EXACT:
        doubled = _doubled_ranks(np.abs(counted))
        p_value = _two_sided(_signed_ranks(doubled), int(doubled[counted > 0].sum()))
    else:
        p_value = float(_scipy().wilcoxon(counted, method="asymptotic").pvalue)

    def at_most(value: float) -> int:
        pairs = np.searchsorted(differences, 2 * value - differences, side="right").sum()
        return int(pairs + np.searchsorted(differences, value, side="right")) // 2

    if n <= EXACT:
        rank = _critical_rank(_signed_ranks(np.arange(1, n + 1)), level)
    else:
        spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
        rank = math.floor(n * (n + 1) / 4 - normal_quantile(level) * spread + 0.5)
    ends = (float(differences[0]), float(differences[-1]))
    return _rank_test(at_most, n * (n + 1) // 2, rank, ends, unit, p_value, exact=exact)


def rank_sum(first: FloatArray, second: FloatArray, *, level: float) -> RankTest:
    """Mann & Whitney's test of `first`, shape (n,), against `second`, shape (m,), both at least 1.

    Equal numbers share their ranks (Mann & Whitney 1947). p is counted over all ways to deal the ranks, with up to
    EXACT numbers on both sides together, else from the normal distribution with ties and continuity corrected (scipy).
    The shift is the median of all differences of one of the first and one of the second; the ends of the interval are
    such differences (Hodges & Lehmann 1963), chosen as if nothing were tied. It is not the difference of the medians.
    """
    unit = float(max(np.abs(first).max(), np.abs(second).max())) or 1.0
    first, second = (np.sort(np.round(side / unit, DIGITS)) for side in (first, second))
    n, m = first.size, second.size
    if exact := n + m <= EXACT:
        doubled = _doubled_ranks(np.concatenate([first, second]))
        p_value = _two_sided(_rank_sums(doubled, n), int(doubled[:n].sum()))
        untied = _rank_sums(np.arange(1, n + m + 1), n)[n * (n + 1) // 2 :]
        rank = _critical_rank(untied, level)
    else:
        p_value = float(_scipy().mannwhitneyu(first, second, method="asymptotic").pvalue)
        spread = math.sqrt(n * m * (n + m + 1) / 12)
        rank = math.floor(n * m / 2 - normal_quantile(level) * spread + 0.5)

    def at_most(value: float) -> int:
        return int(np.searchsorted(first, value + second, side="right").sum())

    ends = (float(first[0] - second[-1]), float(first[-1] - second[0]))
    return _rank_test(at_most, n * m, rank, ends, unit, p_value, exact=exact)


def _rank_test(
    at_most: Callable[[float], int],
    count: int,
    rank: int,
    ends: tuple[float, float],
    unit: float,
    p_value: float,
    *,
    exact: bool,
) -> RankTest:
    def at(place: int) -> float:
        return _smallest(at_most, place, ends) * unit

    return RankTest(
        shift=(at((count + 1) // 2) + at(count // 2 + 1)) / 2,
        low=at(rank) if rank > 0 else None,
        high=at(count + 1 - rank) if rank > 0 else None,
        p_value=p_value,
        exact=exact,
    )


def _smallest(at_most: Callable[[float], int], place: int, ends: tuple[float, float]) -> float:
    """The `place`-th number, counted from 1, of many in ascending order, by halving; they lie within `ends`."""
    low, high = ends[0] - 1.0, ends[1]
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if at_most(middle) >= place else (middle, high)
    return round(high, DIGITS) + 0.0


def _doubled_ranks(values: FloatArray) -> NDArray[np.intp]:
    """Twice the rank of each, whole numbers even where equal ones share the mean of theirs."""
    ordered = np.sort(values)
    both = np.searchsorted(ordered, values, side="left") + np.searchsorted(ordered, values, side="right")
    return np.asarray(both + 1, dtype=np.intp)


def _signed_ranks(ranks: NDArray[np.intp]) -> FloatArray:
    """The probability of each sum of the ranks that are positive, from 0, if each is so with even odds."""
    found = np.zeros(int(ranks.sum()) + 1)
    found[0] = 1.0
    for rank in ranks.tolist():
        with_it = found[: found.size - rank] / 2
        found = found / 2
        found[rank:] += with_it
    return found


def _rank_sums(ranks: NDArray[np.intp], n: int) -> FloatArray:
    """The probability of each sum of n of the ranks, from 0, if all choices are as likely."""
    ways = np.zeros((n + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1.0
    for rank in ranks.tolist():
        with_it = ways[:-1, : ways.shape[1] - rank].copy()
        ways[1:, rank:] += with_it
    return np.asarray(ways[n] / ways[n].sum())


def _two_sided(probabilities: FloatArray, found: int) -> float:
    return min(1.0, 2 * float(min(probabilities[: found + 1].sum(), probabilities[found:].sum())))


def _critical_rank(probabilities: FloatArray, level: float) -> int:
    """How many sums at the lower end are together no likelier than what is left out on one side; 0 if none are."""
    return int(np.searchsorted(np.cumsum(probabilities), (1 - level) / 2 * (1 + 1e-12), side="right"))


def _scipy() -> Any:
    # Late, as in stats.distributions.
    from scipy import stats  # type: ignore[import-untyped, unused-ignore]

    return stats
